// Package text writes a report for a person at a terminal: the verdicts first, then
// the numbers they rest on, then what could not be seen.
//
// What may not come in: judging. It shows what it is given.
package text
