package main

// known are the differences that are left, and why. docs/compatibility.md cites this list.
var known = []struct {
	reason string
	is     func(d *difference) bool
}{}

func knownReason(d *difference) (string, bool) {
	for _, known := range known {
		if known.is(d) {
			return known.reason, true
		}
	}
	return "", false
}
