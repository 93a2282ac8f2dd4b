package main

import (
	"strings"
)

// jsonPatch returns a JSON patch (RFC 6902).
func (g *gen) jsonPatch() string {
	operations := make([]string, 1+g.Intn(3))
	for at := range operations {
		fields := []string{
			`"op":` + g.mostly(25, g.one(`"replace"`, `"add"`, `"add"`, `"remove"`, `"test"`, `"copy"`, `"move"`), `"bad"`, `""`, "5", "null"),
			`"path":` + g.pointer(),
		}
		switch {
		case g.odds(12):
		case strings.Contains(fields[1], "resourceVersion"):
			fields = append(fields, `"value":`+g.one(`"${rv:l0:0}"`, `"${rv:l0:0}"`, `"${rv:l0:1}"`, `""`, "null", "5"))
		default:
			fields = append(fields, `"value":`+g.anyValue())
		}
		if strings.Contains(fields[0], "copy") || strings.Contains(fields[0], "move") || g.odds(25) {
			// A patch must not copy a resourceVersion to another field, where no symbol would replace it.
			fields = append(fields, `"from":`+strings.Replace(g.pointer(), "resourceVersion", "name", 1))
		}
		operations[at] = g.object(fields)
	}
	text := "[" + strings.Join(operations, ",") + "]"
	if g.wrong(40) {
		return g.one("", "{}", "null", "[null]", "[5]", "[]", "x", "[{}]", text+"x", `"x"`, " "+text)
	}
	return text
}

func (g *gen) pointer() string {
	if g.wrong(20) {
		return g.one(`""`, `"/"`, `"spec"`, "5", "null", `"/~"`, `"/~2"`, `"//"`, `"/spec/"`, `"/metadata/finalizers/01"`, `"/metadata/finalizers/99999999999999999999"`, `"/é"`)
	}
	return g.one(`"/spec/holderIdentity"`, `"/spec/holderIdentity"`, `"/spec/leaseDurationSeconds"`, `"/spec/renewTime"`, `"/spec/leaseTransitions"`, `"/spec/preferredHolder"`,
		`"/spec"`, `"/metadata/labels"`, `"/metadata/labels/app"`, `"/metadata/annotations"`, `"/metadata/annotations/example.com~1y"`, `"/metadata/finalizers"`,
		`"/metadata/finalizers/0"`, `"/metadata/finalizers/-"`, `"/metadata/finalizers/1"`, `"/metadata/finalizers/-1"`, `"/metadata/ownerReferences"`, `"/metadata/ownerReferences/0"`,
		`"/metadata/resourceVersion"`, `"/metadata/uid"`, `"/metadata/name"`, `"/metadata/managedFields"`, `"/metadata/managedFields/0"`, `"/metadata/unknown"`, `"/unknown"`,
		`"/spec/unknown"`, `"/metadata"`, `"/kind"`, `"/apiVersion"`, `"/metadata/namespace"`, `"/metadata/deletionTimestamp"`, `"/metadata/creationTimestamp"`)
}

// anyValue returns a value for an operation of a JSON patch on any field.
func (g *gen) anyValue() string {
	switch g.Intn(12) {
	case 0:
		return g.number()
	case 1:
		return g.time()
	case 2:
		return g.labels()
	case 3:
		return g.list(g.finalizer)
	case 4:
		return g.list(g.owner)
	case 5:
		return g.one("null", "{}", "[]", "true", `"${uid:l0:0}"`, `"l0"`, `"l1"`)
	case 6:
		return g.object(g.spec())
	case 7:
		return g.finalizer()
	default:
		return g.text()
	}
}

// mergePatch returns a JSON merge patch (RFC 7386), or a strategic merge patch.
func (g *gen) mergePatch(strategic bool) string {
	var fields []string
	if !g.odds(4) {
		fields = append(fields, `"spec":`+g.mostly(25, g.object(append(g.spec(), g.directives(strategic)...)), "null", "{}", "[]", "5"))
	}
	if g.odds(2) {
		fields = append(fields, `"metadata":`+g.mostly(25, g.object(g.patchOfMeta(strategic)), "null", "{}", "[]"))
	}
	if g.wrong(12) {
		fields = append(fields, g.one(`"kind":"Lease"`, `"apiVersion":"coordination.k8s.io/v1"`, `"kind":"Pod"`, `"apiVersion":"v2"`, `"unknown":1`, `"kind":null`, `"status":{}`, `"apiVersion":null`, `"kind":5`))
	}
	fields = append(fields, g.directives(strategic)...)
	text := g.object(unique(fields))
	if g.wrong(40) {
		return g.one("", "null", "[]", "5", `"x"`, "x", text+"x", "{", " "+text)
	}
	return text
}

func (g *gen) patchOfMeta(strategic bool) []string {
	var fields []string
	for _, field := range g.meta("") {
		// In a patch, null removes a field.
		if g.odds(8) {
			key, _, _ := strings.Cut(field, ":")
			field = key + ":null"
		}
		fields = append(fields, field)
	}
	if g.odds(6) {
		fields = append(fields, `"resourceVersion":`+g.one(`"${rv:l0:0}"`, `"${rv:l0:1}"`, `"0"`, `""`, "null", `"x"`, `"1"`, "5"))
	}
	if g.odds(8) {
		fields = append(fields, `"uid":`+g.one(`"${uid:l0:0}"`, `"${uid:l1:0}"`, `"x"`, `""`, "null"))
	}
	if g.odds(15) {
		fields = append(fields, `"name":`+g.one(`"l0"`, `"l1"`, `""`, "null", "5"))
	}
	if strategic && g.odds(4) {
		fields = append(fields, g.one(
			`"$deleteFromPrimitiveList/finalizers":["example.com/a"]`, `"$deleteFromPrimitiveList/finalizers":[]`, `"$deleteFromPrimitiveList/finalizers":"x"`,
			`"$setElementOrder/finalizers":["example.com/b","example.com/a"]`, `"$setElementOrder/finalizers":["example.com/b"]`,
			`"$setElementOrder/ownerReferences":[{"uid":"u2"},{"uid":"u1"}]`, `"$retainKeys":["name"]`, `"$patch":"replace"`, `"$patch":"delete"`,
			`"ownerReferences":[{"$patch":"delete","uid":"u1"}]`, `"ownerReferences":[{"$patch":"replace"}]`, `"ownerReferences":[{"uid":"u1","controller":true}]`,
			`"labels":{"$patch":"replace","app":"only"}`, `"labels":{"$patch":"delete"}`, `"labels":{"$retainKeys":["app"]}`, `"ownerReferences":[{"$patch":"merge","uid":"u1","kind":"Pod"}]`))
	}
	return unique(fields)
}

func (g *gen) directives(strategic bool) []string {
	if !strategic || !g.odds(12) {
		return nil
	}
	return []string{g.one(`"$patch":"replace"`, `"$patch":"delete"`, `"$patch":"merge"`, `"$patch":"bad"`, `"$patch":5`, `"$retainKeys":["holderIdentity"]`, `"$retainKeys":["leaseDurationSeconds","holderIdentity"]`,
		`"$retainKeys":"x"`, `"$setElementOrder/x":[]`, `"$deleteFromPrimitiveList/x":["a"]`, `"$unknown":1`)}
}

// configuration returns the configuration of a Lease for a server-side apply, as JSON.
func (g *gen) configuration(name string) string {
	meta := []string{`"name":` + g.mostly(20, quoted(name), `"l1"`, `""`, "null", "5")}
	if g.odds(5) {
		meta = append(meta, `"namespace":`+g.mostly(10, `"${ns}"`, `"${other}"`, `""`))
	}
	if g.odds(3) {
		meta = append(meta, `"labels":`+g.labels())
	}
	if g.odds(4) {
		meta = append(meta, `"annotations":`+g.annotations())
	}
	if g.odds(4) {
		meta = append(meta, `"finalizers":`+g.mostly(15, g.list(g.finalizer), "null", "{}"))
	}
	if g.odds(4) {
		meta = append(meta, `"ownerReferences":`+g.mostly(15, g.list(g.owner), "null"))
	}
	if g.wrong(12) {
		meta = append(meta, g.one(`"managedFields":[]`, `"managedFields":null`, `"managedFields":[{}]`, `"resourceVersion":"${rv:l0:0}"`, `"resourceVersion":"1"`, `"uid":"${uid:l0:0}"`, `"uid":"x"`,
			`"creationTimestamp":null`, `"creationTimestamp":"2020-01-02T03:04:05Z"`, `"generation":1`, `"unknown":1`, `"selfLink":"x"`, `"resourceVersion":""`))
	}
	fields := []string{
		`"apiVersion":` + g.mostly(30, `"coordination.k8s.io/v1"`, `"v1"`, `""`, "null", `"coordination.k8s.io/v2"`, "5"), `"kind":` + g.mostly(30, `"Lease"`, `"Pod"`, `""`, "null", "5"),
		`"metadata":` + g.mostly(40, g.object(unique(meta)), "null", "{}", "[]"), `"spec":` + g.mostly(25, g.object(g.spec()), "null", "{}", "[]"),
	}
	if g.odds(4) {
		fields = g.less(fields)
	}
	if g.wrong(40) {
		fields = append(fields, `"unknown":1`)
	}
	text := g.object(fields)
	if g.wrong(50) {
		return g.one("", "null", "[]", "5", "x", "a: b", "{", "- a", text+"\n---\n"+text, "%", `"x"`)
	}
	return text
}
