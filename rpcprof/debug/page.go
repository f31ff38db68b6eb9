package debug

import (
	_ "embed"
	"html/template"
)

//go:embed page.html
var pageText string

// Both templates escape what they are given: names are foreign.
var (
	page    = template.Must(template.New("page").Parse(pageText))
	nothing = template.Must(template.New("nothing").Parse(`<!doctype html><meta charset="utf-8"><title>rpcprof</title><p>{{.}}</p>
`))
)
