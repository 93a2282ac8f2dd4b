package main

import (
	"fmt"
	"net/http"
	"reflect"
	"testing"
)

// A sequence must follow from its seed alone, and each of its steps must have a request, whatever was seen before.
func TestSequencesFollowFromTheirSeeds(t *testing.T) {
	empty, full := newMemory(namespacesOf(0)), newMemory(namespacesOf(0))
	for _, name := range []string{"l0", "l1", "l2"} {
		full.learn(fmt.Appendf(nil, `{"kind":"Lease","metadata":{"name":%q,"namespace":"differential-00","uid":"u","resourceVersion":"5"},"spec":{}}`, name))
	}
	for seed := range int64(2000) {
		once, again := generate(seed, 24), generate(seed, 24)
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

// What must differ is named alike on both sides; what may not stays.
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

// A UID that was sent as a time is refused wherever it ceases to look like one.
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
