package rpcprof

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write api.txt anew")

// maxNames is how many package-level names a service's owner may have to look through.
const maxNames = 35

// What a service's owner sees of the package is in api.txt, so that no change of it goes
// unnoticed, and stays few.
func TestAPI(t *testing.T) {
	names, members := exported(t)
	var b strings.Builder
	fmt.Fprintf(&b, "%d names\n\n%s\n\n%d methods and fields\n\n%s\n", len(names), strings.Join(names, "\n"), len(members), strings.Join(members, "\n"))
	if *update {
		if err := os.WriteFile("api.txt", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("api.txt")
	if err != nil {
		t.Fatal(err)
	}
	had := strings.Split(string(want), "\n")
	has := strings.Split(b.String(), "\n")
	for _, s := range had {
		if !slices.Contains(has, s) {
			t.Errorf("api.txt has, the package has not: %s", s)
		}
	}
	for _, s := range has {
		if !slices.Contains(had, s) {
			t.Errorf("the package has, api.txt has not: %s", s)
		}
	}
	if t.Failed() {
		t.Log("what is meant to change is taken over with -update")
	}
	if len(names) > maxNames {
		t.Errorf("%d package-level names, over %d", len(names), maxNames)
	}
}

// exported gives the package's names, and the methods and fields of its types, each in
// a line, on all systems together.
func exported(t *testing.T) (names, members []string) {
	t.Helper()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	show := func(n ast.Node) string {
		var b strings.Builder
		if err := (&printer.Config{Mode: printer.RawFormat}).Fprint(&b, fset, n); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(b.String()), " ")
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(fset, f.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if !d.Name.IsExported() {
					continue
				}
				d.Doc, d.Body = nil, nil
				switch {
				case d.Recv == nil:
					names = append(names, show(d))
				case ast.IsExported(strings.TrimLeft(show(d.Recv.List[0].Type), "*")):
					members = append(members, show(d))
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					n, m := ofSpec(d.Tok, s, show)
					names, members = append(names, n...), append(members, m...)
				}
			}
		}
	}
	slices.Sort(names)
	slices.Sort(members)
	return slices.Compact(names), slices.Compact(members)
}

func ofSpec(tok token.Token, s ast.Spec, show func(ast.Node) string) (names, members []string) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			if n.IsExported() {
				names = append(names, tok.String()+" "+n.Name)
			}
		}
	case *ast.TypeSpec:
		if !s.Name.IsExported() {
			return nil, nil
		}
		fields, of := []*ast.Field(nil), "field"
		switch typ := s.Type.(type) {
		case *ast.StructType:
			names, fields = append(names, "type "+s.Name.Name+" struct"), typ.Fields.List
		case *ast.InterfaceType:
			names, fields, of = append(names, "type "+s.Name.Name+" interface"), typ.Methods.List, "method"
		default:
			assign := " "
			if s.Assign.IsValid() {
				assign = " = "
			}
			names = append(names, "type "+s.Name.Name+assign+show(s.Type))
		}
		for _, f := range fields {
			for _, n := range f.Names {
				if n.IsExported() {
					members = append(members, of+" "+s.Name.Name+"."+n.Name+" "+show(f.Type))
				}
			}
			if len(f.Names) == 0 && ast.IsExported(strings.TrimLeft(show(f.Type), "*")) {
				members = append(members, of+" "+s.Name.Name+"."+show(f.Type))
			}
		}
	}
	return names, members
}
