package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestSequencesFollowFromTheirSeeds checks that a seed always results in the same sequence. It also checks that no
// symbol, such as ${uid:l1:0}, is left in the request of a step. The memory of values that replace the symbols is once
// empty and once full.
func TestSequencesFollowFromTheirSeeds(t *testing.T) {
	empty, full := newMemory(namespacesOf(0)), newMemory(namespacesOf(0))
	for _, name := range []string{"l0", "l1", "l2"} {
		full.learn(fmt.Appendf(nil, `{"kind":"Lease","metadata":{"name":%q,"namespace":"differential-00","uid":"u","resourceVersion":"5"},"spec":{}}`, name))
	}
	for seed := range int64(2000) {
		shards := seed%4 == 3
		once, again := generate(seed, 24, shards), generate(seed, 24, shards)
		if !reflect.DeepEqual(once, again) {
			t.Fatalf("seed %d results in two different sequences", seed)
		}
		for _, step := range once.steps {
			for _, memory := range []*memory{empty, full} {
				if sent := step.message(memory); symbols.MatchString(sent.target) || symbols.Match(sent.body) {
					t.Fatalf("seed %d: a symbol is left in the target %q or the body %q", seed, sent.target, sent.body)
				}
			}
		}
	}
}

// TestWhatMustDifferIsNamed checks that normalOf replaces values that must differ between the servers, such as UIDs, by
// the same symbols. Other differences must stay.
func TestWhatMustDifferIsNamed(t *testing.T) {
	body := `{"kind":"Lease","metadata":{"name":"l0","uid":"%s","resourceVersion":"%d"},"spec":{"leaseDurationSeconds":%d}}`
	normals := func(uid string, version, seconds int) string {
		m := newMemory(namespacesOf(0))
		header := http.Header{"Content-Type": {"application/json"}}
		return m.normalOf(answer{status: 200, header: header, body: fmt.Appendf(nil, body, uid, version, seconds)}, message{target: leasesOf("x") + "/l0"}, true).text
	}
	one := normals("8c4a3a4e-0000-4000-8000-000000000001", 77, 15)
	if other := normals("8c4a3a4e-0000-4000-8000-000000000002", 1790000000000000, 15); one != other {
		t.Errorf("%s differs from %s", one, other)
	}
	if other := normals("8c4a3a4e-0000-4000-8000-000000000001", 77, 16); one == other {
		t.Error("a difference was lost")
	}
}

// TestAUIDInPlaceOfATimeIsRefusedInTheSameWords checks the comparison of messages about a UID in place of a time. Go's
// words depend on the first characters of the UID, but the compared text must be the same for all UIDs.
func TestAUIDInPlaceOfATimeIsRefusedInTheSameWords(t *testing.T) {
	words := func(uid, rest, expected string) string {
		body := fmt.Sprintf(`{"message":"parsing time \"%s\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"%s\" as \"%s\"","code":422}`, uid, rest, expected)
		return newMemory(namespacesOf(0)).name(body).text
	}
	digits := words("8912db99-c33d-49f2-adc2-b7596c705b45", "db99-c33d-49f2-adc2-b7596c705b45", "-")
	letters := words("dbc9db99-c33d-49f2-adc2-b7596c705b45", "dbc9db99-c33d-49f2-adc2-b7596c705b45", "2006")
	if digits != letters {
		t.Errorf("%s differs from %s", digits, letters)
	}
}

// TestOtherWordsOfKubernetes134AreKnown checks that the words of Kubernetes 1.34 are known differences, and that
// further causes are not.
func TestOtherWordsOfKubernetes134AreKnown(t *testing.T) {
	said := func(code int, reason, message string, causes ...string) string {
		text := fmt.Sprintf(`{"kind":"Status","message":%q,"reason":%q,"details":{"causes":[%s]},"code":%d}`,
			message, reason, strings.Join(causes, ","), code)
		return fmt.Sprintf("%d\nContent-Type: x\n\n%s", code, causesInOrder(text+"\nenvelope \"\" \"\""))
	}
	cause := func(reason, message, field string) string {
		return fmt.Sprintf(`{"reason":%q,"message":%q,"field":%q}`, reason, message, field)
	}
	missing := cause("FieldValueInvalid", `Invalid value: "": must not be empty`, "metadata.ownerReferences.uid")
	required := cause("FieldValueRequired", "Required value: must not be empty", "metadata.ownerReferences[0].uid")
	long := cause("FieldValueInvalid", `Invalid value: "x": must be no more than 63 characters`, "metadata.labels")
	longer := cause("FieldValueInvalid", `Invalid value: "x": must be no more than 63 bytes`, "metadata.labels")
	owned := `"managedFields":[{"fieldsV1":{"f:metadata":{"f:deletionTimestamp":{}}}}]}`
	for name, c := range map[string]struct {
		method, body, old, now string
		is                     bool
	}{
		"an owner without a UID":     {"PUT", "{}", said(422, "Invalid", "l0 is invalid: a", missing, missing), said(422, "Invalid", "l0 is invalid: b", required), true},
		"an additional cause":        {"PUT", "{}", said(422, "Invalid", "l0 is invalid: a", missing, long), said(422, "Invalid", "l0 is invalid: b", required), false},
		"another name":               {"PUT", "{}", said(422, "Invalid", "l0 is invalid: a", long), said(422, "Invalid", "l1 is invalid: b", longer), false},
		"causes of a map":            {"PUT", "{}", said(422, "Invalid", "l0 is invalid: a", long, long), said(422, "Invalid", "l0 is invalid: b", longer), true},
		"causes of another map":      {"PUT", "{}", said(422, "Invalid", "l0 is invalid: a", long, long), said(422, "Invalid", "l0 is invalid: b", missing), false},
		"no causes":                  {"PUT", "{}", said(422, "Invalid", "l0 is invalid: a", long, long), "422\n\nx", false},
		"bytes":                      {"PUT", "{}", said(422, "Invalid", "l0 is invalid: a", long), said(422, "Invalid", "l0 is invalid: b", longer), true},
		"a deletion that was kept":   {"PUT", "{}", "201\n\n" + `{"deletionTimestamp":"x",` + owned, "201\n\n{" + owned, true},
		"a deletion that we keep":    {"PUT", "{}", "201\n\n{" + owned, "201\n\n" + `{"deletionTimestamp":"x",` + owned, false},
		"options that do not decode": {"DELETE", "x", said(500, "", "no kind x"), said(400, "BadRequest", "no kind x"), true},
		"a PUT that does not decode": {"PUT", "x", said(500, "", "no kind x"), said(400, "BadRequest", "no kind x"), false},
		"a patch that is not JSON":   {"PATCH", "{", said(404, "NotFound", "x"), said(400, "BadRequest", "invalid JSON patch"), true},
		"a patch in JSON":            {"PATCH", "{}", said(404, "NotFound", "x"), said(400, "BadRequest", "invalid JSON patch"), false},
		"a patch that succeeded":     {"PATCH", "{", said(200, "", "x"), said(400, "BadRequest", "invalid JSON patch"), false},
	} {
		sent := message{method: c.method, body: []byte(c.body)}
		label := map[string]string{"PATCH": "patch-merge"}[c.method]
		d := &difference{step: step{label: label, method: c.method}, asked: [2]message{sent, sent}, said: [2]string{c.old, c.now}}
		if reason, is := knownReason(known134, d); is != c.is {
			t.Errorf("%s: is known: %t, reason: %q", name, is, reason)
		}
	}
}

// TestKnownDifferencesAreNarrow checks that a known difference matches what its reason describes, and nothing else.
func TestKnownDifferencesAreNarrow(t *testing.T) {
	const inJSON, inYAML = "\nContent-Type: application/json\n\n", "\nContent-Type: application/yaml\n\n"
	status := func(code int, reason, message string) string {
		return fmt.Sprintf(`%d%s{"kind":"Status","status":"Failure","message":%q,"reason":%q,"code":%d}`, code, inJSON, message, reason, code)
	}
	event := func(code int, message string) string {
		return fmt.Sprintf(`{"type":"ERROR","object":{"kind":"Status","message":%q,"reason":"Expired","code":%d}}`, message, code)
	}
	noLease := func(why string) string {
		return status(400, "BadRequest", `Pod in version "v1" cannot be handled as a Lease: `+why)
	}
	const added, list = `{"type":"ADDED","object":{"kind":"Lease"}}`, "200" + inJSON + `{"kind":"LeaseList","items":[]}`
	const otherKind = "converting (v1.Pod) to (coordination.Lease): unknown conversion"
	tooOld, above := event(410, "too old resource version: 1 (77)"), event(410, "resource version "+future+" is above the newest, 77: list anew")
	gone := status(410, "Expired", "The resourceVersion for the provided list is too old.")
	panicked, other := "0\n\n\nkube-apiserver: "+hungUp, "0\n\n\nkube-apiserver: connection refused"
	invalid := status(422, "Invalid", "the server rejected our request due to an error in our request")
	const protobuf, yamlType, mergeType = "application/vnd.kubernetes.protobuf", "application/yaml", "application/merge-patch+json"
	for name, c := range map[string]struct {
		label, method, target, header, body, theirs, ours string
		is                                                bool
	}{
		"a list at an old version":         {"list", "GET", "?limit=1&resourceVersion=01", "", "", list, gone, true},
		"a list that we do not refuse":     {"list", "GET", "?resourceVersion=1", "", "", list, strings.Replace(list, "[]", "[{}]", 1), false},
		"a list that we refuse otherwise":  {"list", "GET", "?resourceVersion=1", "", "", list, status(500, "", "x"), false},
		"a list at a newer version":        {"list", "GET", "?resourceVersion=7&resourceVersion=1", "", "", list, gone, false},
		"a write with such an option":      {"update", "PUT", "?resourceVersion=1", "", "", list, gone, false},
		"a watch from an old version":      {"watch events", "GET", "?watch=1&resourceVersion=1", "", "", added, tooOld, true},
		"a watch with other events":        {"watch events", "GET", "?watch=1&resourceVersion=1", "", "", added, added + "\n" + added, false},
		"a watch that both refuse":         {"watch events", "GET", "?watch=1&resourceVersion=1", "", "", event(410, "compacted"), tooOld, false},
		"a watch from a future version":    {"watch events", "GET", "?watch=1&resourceVersion=" + future, "", "", "", above, true},
		"a future watch, another end":      {"watch events", "GET", "?watch=1&resourceVersion=" + future, "", "", "", tooOld, false},
		"a future watch with events":       {"watch events", "GET", "?watch=1&resourceVersion=" + future, "", "", added, above, false},
		"a watch from version 0":           {"watch events", "GET", "?watch=1&resourceVersion=0&resourceVersion=" + future, "", "", "", above, false},
		"a dry run":                        {"create", "POST", "?dryRun=All", "", "", "201" + inJSON + `{"metadata":{"name":"a","resourceVersion":"x","uid":"u"}}`, "201" + inJSON + `{"metadata":{"name":"a","uid":"u"}}`, true},
		"a dry run in YAML":                {"create", "POST", "?dryRun=All", "", "", "201" + inYAML + "metadata:\n  resourceVersion: x\nrows: 1\n", "201" + inYAML + "metadata: {}\nrows: 1\n", true},
		"a dry run with another name":      {"create", "POST", "?dryRun=All", "", "", "201" + inJSON + `{"metadata":{"name":"a","resourceVersion":"x"}}`, "201" + inJSON + `{"metadata":{"name":"b"}}`, false},
		"a creation that is stored":        {"create", "POST", "?dryRun=", "", "", "201" + inJSON + `{"metadata":{"name":"a","resourceVersion":"x","uid":"u"}}`, "201" + inJSON + `{"metadata":{"name":"a","uid":"u"}}`, false},
		"YAML that one parser refuses":     {"update", "PUT", "", yamlType, "a", status(400, "BadRequest", "yaml: x"), "200" + inJSON + "{}", true},
		"JSON that one server refuses":     {"update", "PUT", "", "", "a", status(400, "BadRequest", "yaml: x"), "200" + inJSON + "{}", false},
		"YAML that both take":              {"update", "PUT", "", yamlType, "a", "200" + inJSON + "{}", "200" + inJSON + `{"a":1}`, false},
		"an unknown kind":                  {"create", "POST", "", "", "{}", noLease(`no kind "Pod" is registered`), noLease(otherKind), true},
		"an unknown kind, another version": {"create", "POST", "", "", "{}", strings.Replace(noLease(`no kind "Pod" is registered`), "v1", "v2", 1), noLease(otherKind), false},
		"a kind that is refused otherwise": {"create", "POST", "", "", "{}", noLease("json: x"), noLease(otherKind), false},
		"a kind that we take":              {"create", "POST", "", "", "{}", noLease(`no kind "Pod" is registered`), "201" + inJSON + "{}", false},
		"protobuf of another kind":         {"create", "POST", "", protobuf, "{}", noLease("proto: wrong wireType = 2"), noLease(otherKind), true},
		"protobuf refused otherwise":       {"create", "POST", "", protobuf, "{}", noLease("json: x"), noLease(otherKind), false},
		"protobuf that kube-apiserver has": {"create", "POST", "", protobuf, "{}", "201" + inJSON + "{}", noLease(otherKind), false},
		"two directives":                   {"patch-strategic", "PATCH", "", mergeType, `{"$patch":"x","spec":{"$patch":"y"}}`, status(500, "", "a"), status(400, "", "b"), true},
		"a directive beside a symbol":      {"patch-strategic", "PATCH", "", mergeType, `{"$patch":"x","metadata":{"namespace":"${ns}"}}`, status(500, "", "a"), status(400, "", "b"), false},
		"warnings of a deleted Lease":      {"patch-merge", "PATCH", "", mergeType, "{}", "404\nWarning: a\nWarning: b\n\nx", "404\n\nx", true},
		"another Lease deleted":            {"patch-merge", "PATCH", "", mergeType, "{}", "404\nWarning: a\n\nx", "404\n\ny", false},
		"a page that is repeated":          {"list", "GET", "/v1/leases?fieldSelector=metadata.namespace%3Da&continue=eyJ2", "", "", list, strings.Replace(list, "[]", "[{}]", 1), true},
		"a page that is refused":           {"list", "GET", "/v1/leases?fieldSelector=metadata.namespace%3Da&continue=eyJ2", "", "", gone, list, false},
		"a panic":                          {"patch-json", "PATCH", "", "", `[{"op":"test","path":""}]`, panicked, invalid, true},
		"a panic at a list with null":      {"patch-json", "PATCH", "", "", `[{"op":"add","path":"/a/-"},{"op":"test","path":"/a","value":["x"]}]`, panicked, invalid, true},
		"a panic at a patch without cause": {"patch-json", "PATCH", "", "", `[{"op":"test","path":"/a","value":5}]`, panicked, invalid, false},
		"a panic at another request":       {"update", "PUT", "", "", `[{"op":"test","path":""}]`, panicked, invalid, false},
		"a lost connection":                {"patch-json", "PATCH", "", "", `[{"op":"test","path":""}]`, other, invalid, false},
		"a panic of both servers":          {"patch-json", "PATCH", "", "", `[{"op":"test","path":""}]`, panicked, "0\n\n\nour server: " + hungUp, false},
		"a control character":              {"get", "GET", "", "", "", status(500, "", "yaml: control characters are not allowed"), "200" + inYAML + `a: "\x7F"`, true},
		"no control character":             {"get", "GET", "", "", "", status(500, "", "yaml: control characters are not allowed"), "200" + inYAML + `a: "b"`, false},
		"a Lease that we do not find":      {"get", "GET", "", "", "", status(500, "", "yaml: control characters are not allowed"), "404" + inYAML + `a: "\x7F"`, false},
		"a namespace that is not UTF-8":    {"create", "POST", "/namespaces/%E9/leases", "", "", "404" + inJSON + `{"message":"'\\xe9'","name":"\ufffd"}`, "404" + inJSON + "{\"message\":\"'\ufffd'\",\"name\":\"\ufffd\"}", true},
		"that namespace, and a warning":    {"create", "POST", "/namespaces/%E9/leases", "", "", `404` + inJSON + `\xe9`, "404\nWarning: x" + inJSON + "\ufffd", false},
	} {
		sent := message{method: c.method, target: c.target, body: []byte(c.body)}
		step := step{label: c.label, method: c.method, target: c.target, body: body{text: c.body}, header: contentType(c.header)}
		d := &difference{step: step, asked: [2]message{sent, sent}, said: [2]string{c.theirs, c.ours}}
		if reason, is := knownReason(known, d); is != c.is {
			t.Errorf("%s: is known: %t, reason: %q", name, is, reason)
		}
	}
}

// TestARunWithManyFlakesFails checks that flakes fail a run only if too many sequences have them. A flake is a
// difference that does not occur again when the sequence is repeated.
func TestARunWithManyFlakesFails(t *testing.T) {
	for _, c := range []struct {
		sequences, flaky int
		fails            bool
	}{{1, 1, false}, {100, 2, true}, {1000, 5, false}, {1000, 6, true}} {
		found := newReport(20)
		for range c.sequences {
			found.ran(24, 0)
		}
		for seed := range int64(c.flaky) {
			for at := range 3 {
				found.flaked(sequence{seed: seed}, &difference{at: at, said: [2]string{"200\n", "404\n"}})
			}
		}
		var printed strings.Builder
		if found.print(&printed); found.failed() != c.fails {
			t.Errorf("%d of %d sequences have flakes: failed is %t", c.flaky, c.sequences, found.failed())
		}
		if count := strings.Count(printed.String(), "< 200\n"); count != 3*c.flaky {
			t.Errorf("%d of %d sequences have flakes: %d differences are printed", c.flaky, c.sequences, count)
		}
	}
}

// TestOpenAPIDocumentsAreCompared checks that differences of two OpenAPI documents are found, and that two ways to
// write the same document are no difference.
func TestOpenAPIDocumentsAreCompared(t *testing.T) {
	const theirs = `{"info":{"title":"a"},"parameters":{"p-1":{"name":"p","in":"query","type":"string","description":"x"}},
		"paths":{"/apis/apps/v1/":{},"/apis/coordination.k8s.io/v1/leases":{"parameters":[{"$ref":"#/parameters/p-1"}],"get":{"consumes":["a","b"],"description":"x"}}},
		"definitions":{"Pod":{},"io.k8s.api.coordination.v1.Lease":{"required":["a","b"],"properties":{"description":{"type":"string"},"a":{"type":"string"}}}}}`
	const ours = `{"info":{"title":"a"},
		"paths":{"/apis/coordination.k8s.io/v1/leases":{"get":{"consumes":["b","a"],"parameters":[{"name":"p","in":"query","type":"string","required":false}]}}},
		"definitions":{"io.k8s.api.coordination.v1.Lease":{"required":["b","a"],"properties":{"description":{"type":"string"},"a":{"type":"string"}}}}}`
	const get = "/paths//apis/coordination.k8s.io/v1/leases/get"
	const lease = "/definitions/io.k8s.api.coordination.v1.Lease"
	for _, c := range []struct{ from, to, differs string }{
		{"", "", ""},
		{`"title":"a"`, `"title":"b"`, `/info/title: "a" <> "b"`},
		{`"name":"p"`, `"name":"q"`, get + `/parameters/query p: {"in":"query","name":"p","type":"string"} <> nothing`},
		{`"required":false`, `"required":true`, get + `/parameters/query p/required: nothing <> true`},
		{`["b","a"],"parameters"`, `["b"],"parameters"`, get + `/consumes: ["a","b"] <> ["b"]`},
		{`"properties":{"description":{"type":"string"},`, `"properties":{`, lease + `/properties/description: {"type":"string"} <> nothing`},
		{`"required":["b","a"]`, `"x-kind":null,"required":["b","a"]`, lease + `/x-kind: nothing <> null`},
		{`.v1.Lease"`, `.v1.Other"`, lease + `: {"properties":{"a":{"type":"string"},"description":{"type":"string"}},"required":["a","b"]} <> nothing`},
		{`/v1/leases"`, `/v1/other"`, `/paths//apis/coordination.k8s.io/v1/leases: {"get":{"consumes":["a","b"],"parameters":{"query p":{"in":"query","name":"p","type":"string"}}}} <> nothing`},
	} {
		var documents [2]map[string]any
		for at, text := range []string{theirs, strings.Replace(ours, c.from, c.to, 1)} {
			if err := json.Unmarshal([]byte(text), &documents[at]); err != nil {
				t.Fatal(err)
			}
		}
		differences := differencesOfOpenAPI(documents[0], documents[1])
		if c.differs == "" && len(differences) > 0 || c.differs != "" && (len(differences) == 0 || differences[0] != c.differs) {
			t.Errorf("with %s instead of %s: %q", c.to, c.from, differences)
		}
		found := newReport(20)
		for _, difference := range differences {
			found.differsInOpenAPI(difference)
		}
		if found.failed() != (c.differs != "") {
			t.Errorf("with %s instead of %s: failed is %t", c.to, c.from, found.failed())
		}
	}
}

// TestCleanUpLeavesNothing checks that cleanUp deletes the Leases of both servers, and the namespaces. The fake servers
// keep an object until nothing holds it: "metadata" is a finalizer, and "spec" the finalizer of a namespace's spec.
func TestCleanUpLeavesNothing(t *testing.T) {
	fake := func(holds map[string][]string) *server {
		ending := map[string]bool{}
		started := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				items := []string{}
				for path, held := range holds {
					if name, is := strings.CutPrefix(path, r.URL.Path+"/"); is {
						finalizers, _ := json.Marshal(held)
						items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"finalizers":%s}}`, name, finalizers))
					}
				}
				fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(items, ","))
				return
			}
			path := strings.TrimSuffix(r.URL.Path, "/finalize")
			if _, is := holds[path]; !is {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			removed := map[string]string{http.MethodPatch: "metadata", http.MethodPut: "spec"}[r.Method]
			holds[path] = slices.DeleteFunc(holds[path], func(hold string) bool { return hold == removed })
			ending[path] = ending[path] || r.Method == http.MethodDelete
			if ending[path] && len(holds[path]) == 0 {
				delete(holds, path)
			}
		}))
		t.Cleanup(started.Close)
		client := started.Client()
		return &server{name: "fake", host: started.Listener.Addr().String(), client: [2]*http.Client{client, client}}
	}
	namespaces := namespacesOf(0)
	theirs := map[string][]string{leasesOf(namespaces[0]) + "/l0": {"metadata"}, leasesOf(beats) + "/beat-00": {}}
	ours := map[string][]string{leasesOf(namespaces[1]) + "/l1": {}}
	for _, name := range allNamespaces(1) {
		theirs["/api/v1/namespaces/"+name] = []string{"spec"}
	}
	theirs["/api/v1/namespaces/"+goingAway] = []string{"metadata", "spec"}
	for range 2 {
		if err := cleanUp(context.Background(), pair{fake(theirs), fake(ours)}, 1); err != nil || len(theirs)+len(ours) > 0 {
			t.Fatalf("%v; left are %v and %v", err, theirs, ours)
		}
	}
}
