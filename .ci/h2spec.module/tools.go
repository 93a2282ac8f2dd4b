//go:build tools

// Package h2spec makes this module depend on h2spec.
package h2spec

import _ "github.com/summerwind/h2spec/cmd/h2spec"
