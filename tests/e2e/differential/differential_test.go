package main

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// A seed determines its sequence, and each step has a request, whatever the memory of the answers.
func TestSequencesFollowFromTheirSeeds(t *testing.T) {
	empty, full := newMemory(namespacesOf(0)), newMemory(namespacesOf(0))
	for _, name := range []string{"l0", "l1", "l2"} {
		full.learn(fmt.Appendf(nil, `{"kind":"Lease","metadata":{"name":%q,"namespace":"differential-00","uid":"u","resourceVersion":"5"},"spec":{}}`, name))
	}
	for seed := range int64(2000) {
		shards := seed%4 == 3
		once, again := generate(seed, 24, shards), generate(seed, 24, shards)
		if !reflect.DeepEqual(once, again) {
			t.Fatalf("seed %d gives two sequences", seed)
		}
		for _, step := range once.steps {
			for _, memory := range []*memory{empty, full} {
				if sent := step.message(memory); symbols.MatchString(sent.target) || symbols.Match(sent.body) {
					t.Fatalf("seed %d: %q %q", seed, sent.target, sent.body)
				}
			}
		}
	}
}

// Values that must differ get the same name on both sides. Other differences stay.
func TestWhatMustDifferIsNamed(t *testing.T) {
	body := `{"kind":"Lease","metadata":{"name":"l0","uid":"%s","resourceVersion":"%d"},"spec":{"leaseDurationSeconds":%d}}`
	normals := func(uid string, version, seconds int) string {
		m := newMemory(namespacesOf(0))
		header := http.Header{"Content-Type": {"application/json"}}
		return m.normalOf(answer{status: 200, header: header, body: fmt.Appendf(nil, body, uid, version, seconds)}, message{target: leasesOf("x") + "/l0"}, true).text
	}
	one := normals("8c4a3a4e-0000-4000-8000-000000000001", 77, 15)
	if other := normals("8c4a3a4e-0000-4000-8000-000000000002", 1790000000000000, 15); one != other {
		t.Errorf("%s is not %s", one, other)
	}
	if other := normals("8c4a3a4e-0000-4000-8000-000000000001", 77, 16); one == other {
		t.Error("a difference was lost")
	}
}

// A UID in place of a time is refused, wherever it stops looking like a time.
func TestAUIDInPlaceOfATimeIsRefusedInTheSameWords(t *testing.T) {
	words := func(uid, rest, expected string) string {
		body := fmt.Sprintf(`{"message":"parsing time \"%s\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"%s\" as \"%s\"","code":422}`, uid, rest, expected)
		return newMemory(namespacesOf(0)).name(body).text
	}
	digits := words("8912db99-c33d-49f2-adc2-b7596c705b45", "db99-c33d-49f2-adc2-b7596c705b45", "-")
	letters := words("dbc9db99-c33d-49f2-adc2-b7596c705b45", "dbc9db99-c33d-49f2-adc2-b7596c705b45", "2006")
	if digits != letters {
		t.Errorf("%s is not %s", digits, letters)
	}
}

// Kubernetes 1.34's other wordings are known. Additional causes are not.
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
		"a cause more":               {"PUT", "{}", said(422, "Invalid", "l0 is invalid: a", missing, long), said(422, "Invalid", "l0 is invalid: b", required), false},
		"another name":               {"PUT", "{}", said(422, "Invalid", "l0 is invalid: a", long), said(422, "Invalid", "l1 is invalid: b", longer), false},
		"causes of a map":            {"PUT", "{}", said(422, "Invalid", "l0 is invalid: a", long, long), said(422, "Invalid", "l0 is invalid: b", longer), true},
		"those of another map":       {"PUT", "{}", said(422, "Invalid", "l0 is invalid: a", long, long), said(422, "Invalid", "l0 is invalid: b", missing), false},
		"no causes":                  {"PUT", "{}", said(422, "Invalid", "l0 is invalid: a", long, long), "422\n\nx", false},
		"bytes":                      {"PUT", "{}", said(422, "Invalid", "l0 is invalid: a", long), said(422, "Invalid", "l0 is invalid: b", longer), true},
		"a deletion that was kept":   {"PUT", "{}", "201\n\n" + `{"deletionTimestamp":"x",` + owned, "201\n\n{" + owned, true},
		"one that only we keep":      {"PUT", "{}", "201\n\n{" + owned, "201\n\n" + `{"deletionTimestamp":"x",` + owned, false},
		"options that do not decode": {"DELETE", "x", said(500, "", "no kind x"), said(400, "BadRequest", "no kind x"), true},
		"those of something else":    {"PUT", "x", said(500, "", "no kind x"), said(400, "BadRequest", "no kind x"), false},
		"a patch that is no JSON":    {"PATCH", "{", said(404, "NotFound", "x"), said(400, "BadRequest", "invalid JSON patch"), true},
		"one that is":                {"PATCH", "{}", said(404, "NotFound", "x"), said(400, "BadRequest", "invalid JSON patch"), false},
		"one that was taken":         {"PATCH", "{", said(200, "", "x"), said(400, "BadRequest", "invalid JSON patch"), false},
	} {
		sent := message{method: c.method, body: []byte(c.body)}
		d := &difference{step: step{method: c.method}, asked: [2]message{sent, sent}, said: [2]string{c.old, c.now}}
		if reason, is := knownReason(known134, d); is != c.is {
			t.Errorf("%s: %t %s", name, is, reason)
		}
	}
}
