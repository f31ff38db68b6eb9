// Package blame turns a profile into verdicts: sentences that say where a method's
// calls lose time, to what, and who is to blame, with their numbers.
//
// A tail verdict compares a method's slow calls with its typical ones and ranks
// stage and cause by the time that makes the difference. A level verdict is for
// what there is nothing to compare with: calls that are all slow.
//
// What may not come in: where a profile comes from, and how a verdict is shown.
// There is one threshold for all causes, so that no fault is easier to blame than
// another.
package blame
