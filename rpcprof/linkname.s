// Lets the package declare functions without a body (see clock.go).
