package main

import (
	"fmt"
	"math/rand"
	"strings"
)

// gen generates random values. The seed of its random numbers determines all values.
type gen struct {
	*rand.Rand
	serial int  // number of generateName prefixes so far
	calm   bool // whether values that the servers refuse are rare, so that most requests succeed
	shards bool // whether requests may have shard selectors
}

// one returns one of several values with equal probability.
func (g *gen) one(of ...string) string { return of[g.Intn(len(of))] }

// odds returns true with the probability 1/in.
func (g *gen) odds(in int) bool { return g.Intn(in) == 0 }

// wrong is like odds, for values that the servers are likely to refuse. If calm is set, such values are twelve times
// rarer.
func (g *gen) wrong(in int) bool {
	if g.calm {
		in *= 12
	}
	return g.odds(in)
}

// mostly returns the usual value, or one of the others if wrong(in) returns true.
func (g *gen) mostly(in int, usual string, others ...string) string {
	if g.wrong(in) {
		return g.one(others...)
	}
	return usual
}

// name returns the name of one of the few Leases of a sequence.
func (g *gen) name() string { return g.one("l0", "l0", "l0", "l1", "l1", "l2") }

// oddName returns an unusual or invalid name, as JSON.
func (g *gen) oddName() string {
	return g.one(`"L0"`, `"l0."`, `"-l0"`, `"a.b-c"`, `"l_0"`, `"."`, `".."`, `"a/b"`, `"a%b"`, `""`, `"é"`, `" l0"`, `"0"`,
		quoted(strings.Repeat("n", 253)), quoted(strings.Repeat("n", 254)), quoted(strings.Repeat("n.", 126)+"nn"), `null`, `5`, `["l0"]`)
}

// text returns a string as JSON, for a field that allows any text.
func (g *gen) text() string {
	if !g.wrong(3) {
		return g.one(`"a"`, `"b"`, `"node-1"`)
	}
	return g.one(`""`, `"<>&"`, `"\u2028\u2029"`, "\"\u2028\"", `"é"`, `"\u00e9"`, `"\ud83d\ude00"`, `"\ud83d"`, "\"\xff\xfe\"", `"\u0000"`,
		`"\u0007\b\f\n\r\t"`, `"\u007f"`, "\"\u007f\"", `"\\\/\""`, `"null"`, `"true"`, `"1"`, `"1e3"`, `"0x1f"`, `"~"`, `" a "`, `"a: b"`,
		`"#c"`, `"- x"`, `"2024-01-02T03:04:05Z"`, `"2024-01-02"`, `"a\nb\n"`, `"*x"`, `"%"`, `"'"`, `"yes"`, `"a\tb"`, `"${name:0}"`,
		quoted(strings.Repeat("x", 300)), quoted(strings.Repeat("word ", 40)))
}

// time returns a MicroTime, as JSON.
func (g *gen) time() string {
	if !g.wrong(4) {
		return g.one(`"2024-05-06T07:08:09.123456Z"`, `"2024-05-06T07:08:10.000000Z"`, `"2024-05-06T07:08:11.500000Z"`)
	}
	return g.one(`"2024-05-06T07:08:09Z"`, `"2024-05-06T07:08:09.1Z"`, `"2024-05-06T07:08:09.123456789Z"`, `"2024-05-06T07:08:09.123456+02:00"`,
		`"2024-05-06T07:08:09,5Z"`, `"2024-05-06t07:08:09.123456z"`, `"2024-05-06 07:08:09.123456Z"`, `"2024-02-30T07:08:09.123456Z"`,
		`"0001-01-01T00:00:00.000000Z"`, `"0000-01-01T00:00:00.000000Z"`, `"9999-12-31T23:59:59.999999Z"`, `"1969-12-31T23:59:59.999999Z"`,
		`""`, `null`, `5`, `"now"`, `"2024-05-06"`, `"2024-05-06T24:00:00.000000Z"`, `"2024-05-06T07:08:60.000000Z"`, `{}`,
		`"2024-05-06T07:08:09.123456-00:00"`, `"2024-05-06T07:08:09.123456+24:00"`, `true`)
}

// number returns a value for leaseDurationSeconds or leaseTransitions, as JSON.
func (g *gen) number() string {
	if !g.wrong(4) {
		return g.one("1", "15", "40")
	}
	return g.one("0", "-1", "2147483647", "2147483648", "-2147483649", "1.0", "1.5", "1e2", "1E+1", "-0", "0.0", "9223372036854775808", `"5"`, `""`,
		"null", "true", "[]", "{}", "1e400", "15.000000001")
}

// owner returns an ownerReference, as JSON.
func (g *gen) owner() string {
	fields := []string{
		`"apiVersion":` + g.mostly(8, `"v1"`, `""`, `"apps/v1"`, `"a/b/c"`, `null`, `"v1beta1"`), `"kind":` + g.mostly(8, `"Node"`, `""`, `"Event"`, `null`),
		`"name":` + g.mostly(8, `"n1"`, `""`, `"n2"`, `null`), `"uid":` + g.mostly(8, g.one(`"u1"`, `"u2"`, `"u3"`), `""`, `null`),
	}
	if g.odds(4) {
		fields = append(fields, `"controller":`+g.one("true", "false", "null", `"true"`))
	}
	if g.odds(4) {
		fields = append(fields, `"blockOwnerDeletion":`+g.one("true", "false", "null", "1"))
	}
	if g.odds(8) {
		fields = g.less(fields)
	}
	return g.object(fields)
}

// finalizer returns the name of a finalizer, as JSON.
func (g *gen) finalizer() string {
	return g.mostly(5, g.one(`"example.com/a"`, `"example.com/b"`), `"orphan"`, `"foregroundDeletion"`, `"kubernetes"`, `"plain"`, `""`, `"a b"`,
		`"example.com/"`, `"/x"`, `"Example.com/x"`, `null`, `5`, `"example.com/`+strings.Repeat("y", 70)+`"`)
}

// list returns an array of up to three items.
func (g *gen) list(item func() string) string {
	items := make([]string, g.Intn(4))
	for at := range items {
		items[at] = item()
	}
	return "[" + strings.Join(items, ",") + "]"
}

// labels returns labels as JSON. The selectors of requests match many of them.
func (g *gen) labels() string {
	var fields []string
	for range g.Intn(4) {
		key := g.mostly(10, g.one(`"app"`, `"tier"`, `"example.com/x"`), `""`, `"a b"`, `"/x"`, `"A/B/C"`, `"Example.com/x"`, `"é"`, quoted(strings.Repeat("k", 64)))
		value := g.mostly(8, g.one(`"a"`, `"b"`, `""`), `"a b"`, `"-"`, `null`, `5`, `true`, quoted(strings.Repeat("v", 64)), `"é"`, `{}`)
		fields = append(fields, key+":"+value)
	}
	return g.object(unique(fields))
}

// annotations returns annotations with any text, as JSON.
func (g *gen) annotations() string {
	var fields []string
	for range g.Intn(3) {
		fields = append(fields, g.mostly(12, g.one(`"note"`, `"example.com/y"`), `""`, `"a b"`, `"EXAMPLE.com/y"`, `"x/"`)+":"+g.mostly(10, g.text(), "null", "5"))
	}
	return g.object(unique(fields))
}

// unique returns the fields whose key no earlier field has.
func unique(fields []string) []string {
	var kept []string
	seen := map[string]bool{}
	for _, field := range fields {
		key, _, _ := strings.Cut(field, `":`)
		if !seen[key] {
			kept = append(kept, field)
		}
		seen[key] = true
	}
	return kept
}

// object returns a JSON object with these fields, sometimes in random order.
func (g *gen) object(fields []string) string {
	if g.odds(6) {
		g.Shuffle(len(fields), func(a, b int) { fields[a], fields[b] = fields[b], fields[a] })
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// less returns the fields without one of them.
func (g *gen) less(fields []string) []string {
	if len(fields) == 0 {
		return fields
	}
	at := g.Intn(len(fields))
	return append(append([]string{}, fields[:at]...), fields[at+1:]...)
}

func quoted(text string) string { return fmt.Sprintf("%q", text) }
