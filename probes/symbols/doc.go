// Package symbols turns addresses of another process and of the kernel into
// frames: function, file and line, with inlined Go calls expanded.
//
// What lives here: reading of ELF files (elf.go, symtab.go, pages.go), of the Go
// runtime's function table and inline trees (pclntab.go, inline.go,
// moduledata.go), of build information and wait reasons (goinfo.go,
// waitreason.go), of a process's files and mappings (process.go, image.go, maps.go) and of the
// kernel's symbols (kernel.go). The Go tables are part of every Go binary, so
// stripped binaries without DWARF have frames as good as any.
//
// What may not come in: collecting stacks, unwinding, deciding what a frame
// means, and writing to the process looked at. The package reads files and
// memory only.
//
// All that is read belongs to somebody else and may be damaged or forged:
// every read is checked against bounds, every loop and every size has a limit,
// and what cannot be resolved comes out as a frame named "[unknown]".
package symbols
