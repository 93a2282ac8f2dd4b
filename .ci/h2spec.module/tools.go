//go:build tools

// Package h2spec names what this module is for.
package h2spec

import _ "github.com/summerwind/h2spec/cmd/h2spec"
