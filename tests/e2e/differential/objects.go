package main

import (
	"fmt"
	"strings"
)

// meta returns random fields of metadata, and the name unless it is empty.
func (g *gen) meta(name string) []string {
	var fields []string
	if name != "" {
		fields = append(fields, `"name":`+name)
	}
	if g.odds(3) {
		fields = append(fields, `"namespace":`+g.mostly(12, `"${ns}"`, `"${other}"`, `""`, `null`, `"UPPER"`))
	}
	if g.odds(3) {
		fields = append(fields, `"labels":`+g.mostly(20, g.labels(), "null", "[]", `"x"`))
	}
	if g.odds(4) {
		fields = append(fields, `"annotations":`+g.mostly(20, g.annotations(), "null", "[]"))
	}
	if g.odds(6) {
		fields = append(fields, `"finalizers":`+g.mostly(20, g.list(g.finalizer), "null", "{}"))
	}
	if g.odds(6) {
		fields = append(fields, `"ownerReferences":`+g.mostly(20, g.list(g.owner), "null", `[null]`, "{}"))
	}
	if g.wrong(12) {
		fields = append(fields, g.one(
			`"creationTimestamp":null`, `"creationTimestamp":"2020-01-02T03:04:05Z"`, `"creationTimestamp":"x"`, `"generation":3`, `"generation":"x"`,
			`"deletionTimestamp":"2020-01-02T03:04:05Z"`, `"deletionGracePeriodSeconds":5`, `"deletionGracePeriodSeconds":-1`, `"selfLink":"/x"`, `"managedFields":[]`,
			`"managedFields":null`, `"managedFields":[{}]`, `"managedFields":[{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1"}]`,
			`"managedFields":[{"manager":"m1","operation":"Update","apiVersion":"coordination.k8s.io/v1","time":"2020-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:holderIdentity":{}}}}]`,
			`"managedFields":[{"manager":"m2","operation":"Apply","apiVersion":"coordination.k8s.io/v1","time":"2020-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:leaseDurationSeconds":{}}}}]`,
			`"managedFields":[{"manager":"x","operation":"Bad","apiVersion":"coordination.k8s.io/v1","fieldsType":"FieldsV1","fieldsV1":{}}]`,
			`"managedFields":[{"manager":"x","operation":"Update","apiVersion":"coordination.k8s.io/v1","fieldsType":"FieldsV2","fieldsV1":{"x":1}}]`,
			`"uid":"11111111-2222-3333-4444-555555555555"`, `"unknownInMeta":1`, `"clusterName":"x"`, `"uid":5`, `"resourceVersion":"1"`, `"resourceVersion":"0"`, `"resourceVersion":"x"`, `"resourceVersion":""`))
	}
	return fields
}

// spec returns random fields of a Lease's spec.
func (g *gen) spec() []string {
	var fields []string
	if !g.odds(5) {
		fields = append(fields, `"holderIdentity":`+g.mostly(15, g.text(), "null", "5", "{}"))
	}
	if !g.odds(3) {
		fields = append(fields, `"leaseDurationSeconds":`+g.number())
	}
	if !g.odds(3) {
		fields = append(fields, `"renewTime":`+g.time())
	}
	if g.odds(3) {
		fields = append(fields, `"acquireTime":`+g.time())
	}
	if g.odds(3) {
		fields = append(fields, `"leaseTransitions":`+g.number())
	}
	if g.odds(6) {
		fields = append(fields, `"strategy":`+g.mostly(2, `"OldestEmulationVersion"`, `"OldestEmulationVersion"`, `"example.com/s"`, `"Bad"`, `""`, "null", "5"))
	}
	if g.wrong(8) {
		fields = append(fields, `"preferredHolder":`+g.text())
	}
	if g.wrong(15) {
		fields = append(fields, g.one(`"unknown":1`, `"HolderIdentity":"case"`, `"holderidentity":"case"`, `"unknown":{"a":[1]}`, `"holder<>":null`, "\"\u00e9\":1"))
	}
	return fields
}

// lease returns a Lease as JSON. Its name is a JSON value too, or empty for no name.
func (g *gen) lease(name string) string {
	fields := []string{
		`"apiVersion":` + g.mostly(40, `"coordination.k8s.io/v1"`, `"coordination.k8s.io/v2"`, `"v1"`, `""`, `"a/b/c"`, "5", "null", `"apps/v1"`),
		`"kind":` + g.mostly(40, `"Lease"`, `"LeaseList"`, `"Pod"`, `""`, `"lease"`, "null", "{}"),
		`"metadata":` + g.mostly(60, g.object(g.meta(name)), "null", "[]", `"x"`, "{}"), `"spec":` + g.mostly(40, g.object(g.spec()), "null", "{}", "[]", "5"),
	}
	if g.wrong(30) {
		fields = append(fields, g.one(`"unknown":true`, `"status":{}`, `"Spec":{}`, `"kind":"Lease"`, `"a\u00e9":1`, `"a.b":{}`))
	}
	if g.wrong(40) {
		fields = g.less(fields)
	}
	return g.spoiled(g.object(fields))
}

// spoiled returns a JSON object unchanged, or rarely with a change that a parser may refuse.
func (g *gen) spoiled(text string) string {
	if !g.wrong(60) {
		return text
	}
	cut := g.Intn(len(text))
	return g.one("", "null", "[]", "5", `"x"`, " \n"+text+"\n ", text+"x", text+text, "\xef\xbb\xbf"+text, text[:cut], text[:cut]+"?"+text[cut:], "{}",
		strings.Replace(text, `"holderIdentity"`, `"holderIdentity":"dup","holderIdentity"`, 1), strings.Replace(text, `{`, `{"spec":{"holderIdentity":"dup"},`, 1),
		strings.Replace(text, `"metadata":{`, `"metadata":{"name":"dup",`, 1), strings.Replace(text, ":", " : ", -1), strings.Replace(text, ",", ",,", 1))
}

// edits returns edits for an update of the last object of a Lease, mostly those of a renewal or of an acquisition.
func (g *gen) edits() []edit {
	edits := []edit{{[]string{"spec", "renewTime"}, g.validTime()}}
	if g.odds(2) {
		edits = append(edits, edit{[]string{"spec", "holderIdentity"}, g.one(`"a"`, `"b"`, `"c"`)})
	}
	for g.odds(3) {
		edits = append(edits, g.anEdit())
	}
	if g.odds(6) {
		edits = edits[1:]
	}
	return edits
}

func (g *gen) validTime() string {
	return fmt.Sprintf(`"2024-06-07T08:09:%02d.%06dZ"`, g.Intn(60), g.Intn(3)*250000)
}

// anEdit returns an edit of a random field. Go's JSON package must accept its value (edit.apply).
func (g *gen) anEdit() edit {
	meta := func(name string, values ...string) edit { return edit{[]string{"metadata", name}, g.one(values...)} }
	spec := func(name string, values ...string) edit { return edit{[]string{"spec", name}, g.one(values...)} }
	switch g.Intn(20) {
	case 0:
		return meta("resourceVersion", "", `""`, `"0"`, `"1"`, `"x"`, `"${rv:l0:1}"`, `"${rv:l1:0}"`, `"-1"`, `"01"`, `"18446744073709551616"`, `"${future}"`)
	case 1:
		return meta("uid", "", `""`, `"x"`, `"${uid:l1:0}"`, `"${uid:l0:1}"`, `"11111111-2222-3333-4444-555555555555"`)
	case 2:
		return meta("finalizers", "", `[]`, `["example.com/a"]`, `["example.com/a","example.com/b"]`, `["example.com/b","example.com/a"]`, `["x"]`, `["example.com/a","example.com/a"]`)
	case 3:
		return meta("ownerReferences", "", `[]`, "["+g.oneOwner()+"]", "["+g.oneOwner()+","+g.oneOwner()+"]")
	case 4, 5:
		return meta("labels", "", `{}`, `{"app":"a"}`, `{"app":"b","tier":"x"}`, `{"app":"a b"}`, `{"a b":""}`, `null`)
	case 6:
		return meta("annotations", "", `{}`, `{"note":"<&>"}`, `{"note":"x","example.com/y":""}`, `{"a b":"x"}`)
	case 7:
		return meta("managedFields", "", `[]`, `[{}]`, `[{"manager":"x","operation":"Update","apiVersion":"coordination.k8s.io/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:holderIdentity":{}}}}]`,
			`[{"manager":"m1","operation":"Apply","apiVersion":"coordination.k8s.io/v1","time":"2020-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:renewTime":{}}}}]`,
			`[{"manager":"x","operation":"Update","apiVersion":"coordination.k8s.io/v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":5}}]`, `null`)
	case 8:
		return meta("creationTimestamp", "", "null", `"2020-01-02T03:04:05Z"`)
	case 9:
		return meta(g.one("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink", "generateName", "namespace", "name"), "", "null", `""`, "1", "-1", `"2020-01-02T03:04:05Z"`, `"l1"`)
	case 10:
		return edit{[]string{g.one("unknown", "status", "kind", "apiVersion", "spec", "metadata")}, g.one("", "null", `{}`, `"Lease"`, `"x"`, `"coordination.k8s.io/v1"`)}
	case 11:
		return edit{[]string{g.one("metadata", "spec"), "unknown"}, g.one(`1`, `{"a":1}`, `null`)}
	case 12, 13:
		return spec("leaseDurationSeconds", "", "0", "-5", "15", "30", "2147483648", "1.5", `"x"`)
	case 14:
		return spec("acquireTime", "", "null", `"x"`, g.validTime(), `"2024-05-06T07:08:09Z"`)
	case 15:
		return spec("leaseTransitions", "", "0", "1", "2", "-1", "null")
	case 16:
		return spec("strategy", "", `"OldestEmulationVersion"`, `"x"`, `""`)
	case 17:
		return spec("preferredHolder", "", `"p"`, `""`)
	default:
		return spec("holderIdentity", "", `""`, "null", `"<\u2028>"`, `"é"`, `"a"`)
	}
}

// oneOwner returns an ownerReference for an edit.
func (g *gen) oneOwner() string {
	return g.one(`{"apiVersion":"v1","kind":"Node","name":"n1","uid":"u1"}`, `{"apiVersion":"v1","kind":"Node","name":"n2","uid":"u2","controller":true}`,
		`{"apiVersion":"v1","kind":"Node","name":"n3","uid":"u1","controller":true,"blockOwnerDeletion":true}`, `{"apiVersion":"v1","kind":"","name":"n3","uid":"u4"}`)
}

// encoded returns a body in a random encoding, and its Content-Type, which may be wrong.
func (g *gen) encoded(text string, kind string) (body, [][2]string) {
	switch g.Intn(12) {
	case 0, 1:
		return body{text: text, encoding: "yaml"}, contentType("application/yaml")
	case 2, 3:
		return body{text: text, encoding: kind}, contentType("application/vnd.kubernetes.protobuf")
	case 4:
		return body{text: text}, contentType(g.one("application/json; charset=utf-8", "APPLICATION/JSON", "", "text/plain", "application/json;x", "*/*", "application/x-www-form-urlencoded",
			"application/yaml", "application/vnd.kubernetes.protobuf", "application/merge-patch+json", "application/cbor"))
	default:
		return body{text: text}, contentType("application/json")
	}
}

func contentType(value string) [][2]string {
	if value == "" {
		return nil
	}
	return [][2]string{{"Content-Type", value}}
}
