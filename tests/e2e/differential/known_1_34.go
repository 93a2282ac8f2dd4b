package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// knownOf returns the known differences for the version of kube-apiserver, and whether this version is 1.34.
func knownOf(ctx context.Context, kube *server) (differences []knownDifference, is134 bool, err error) {
	answer, err := kube.ask(ctx, 0, message{method: http.MethodGet, target: "/version"}, false)
	if err != nil {
		return nil, false, err
	}
	var release struct{ GitVersion string }
	if err := json.Unmarshal(answer.body, &release); err != nil || release.GitVersion == "" {
		return nil, false, fmt.Errorf("%s: /version: %d %s", kube.name, answer.status, answer.body)
	}
	if strings.HasPrefix(release.GitVersion, "v1.34.") {
		return append(slices.Clone(known), known134...), true, nil
	}
	return known, false, nil
}

// breaking is an option of deletions that kube-apiserver 1.34 ignores.
const breaking = "ignoreStoreReadErrorWithClusterBreakingPotential"

// without134 replaces the parts of a sequence that would leave the servers with different Leases. kube-apiserver 1.34
// ignores the option breaking and deletes the Lease. Our server refuses the deletion, as version 1.37 does.
// kube-apiserver 1.34 refuses two commas in a selector. Our server accepts them, as version 1.37 does.
func without134(made sequence) sequence {
	off := strings.NewReplacer(`"`+breaking+`":true`, `"`+breaking+`":false`, breaking+"=true", breaking+"=false",
		url.QueryEscape("(a,,)"), url.QueryEscape("(a,a)"))
	for at := range made.steps {
		step := &made.steps[at]
		step.target, step.body.text = off.Replace(step.target), off.Replace(step.body.text)
	}
	return made
}

// known134 has further accepted differences, from kube-apiserver 1.34. docs/compatibility.md#kubernetes-134 describes
// them.
var known134 = []knownDifference{
	{
		"1.34: DeleteOptions that do not decode are 500 without a reason; in 1.37 they are 400, BadRequest",
		func(d *difference) bool {
			old, now := statusOf(d.said[0]), statusOf(d.said[1])
			if old.Code != 500 || old.Reason != "" || now.Code != 400 || now.Reason != metav1.StatusReasonBadRequest {
				return false
			}
			return d.step.method == http.MethodDelete && scheme.ReplaceAllString(old.Message, "") == scheme.ReplaceAllString(now.Message, "")
		},
	},
	{
		"1.34: a patch that is not JSON is refused when it is applied, after the name and the Lease are checked; in 1.37 at once",
		func(d *difference) bool {
			old, now := statusOf(d.said[0]), statusOf(d.said[1])
			isPatch := strings.HasPrefix(d.step.label, "patch-") && !json.Valid(d.asked[0].body)
			return isPatch && (old.Code == 400 || old.Code == 404) && now.Code == 400 && now.Message == "invalid JSON patch"
		},
	},
	{
		"1.34: an applied configuration that does not decode is an error decoding YAML, after the check of the name; in 1.37 one of a patch",
		func(d *difference) bool {
			old, now := statusOf(d.said[0]), statusOf(d.said[1])
			isOfYAML := strings.HasPrefix(old.Message, "error decoding YAML: ") &&
				(strings.HasPrefix(now.Message, "error encoding patch: ") || strings.HasPrefix(now.Message, "error decoding patch: "))
			isOfName := strings.HasPrefix(old.Message, "Name parameter ") && strings.HasPrefix(now.Message, "error encoding patch: ")
			return d.step.label == "apply" && old.Code == 400 && now.Code == 400 && (isOfYAML || isOfName)
		},
	},
	{
		"1.34: a JSON patch that replaces the whole Lease by a value that is not an object is ignored; in 1.37 it is 422",
		func(d *difference) bool {
			var patch []struct {
				Op, Path string
				Value    any
			}
			if d.step.label != "patch-json" || statusOf(d.said[1]).Code != 422 || json.Unmarshal(d.asked[0].body, &patch) != nil {
				return false
			}
			for _, operation := range patch {
				if _, is := operation.Value.(map[string]any); operation.Op == "replace" && operation.Path == "" && !is {
					return true
				}
			}
			return false
		},
	},
	{
		"1.34: a creation by PUT or apply keeps the time and the grace period of a deletion, and selfLink; in 1.37 it drops them",
		func(d *difference) bool {
			if d.step.method == http.MethodPost || !strings.HasPrefix(d.said[0], "201\n") {
				return false
			}
			return dropped.MatchString(d.said[0]) && dropped.ReplaceAllString(d.said[0], "") == d.said[1]
		},
	},
	{
		"1.34: the options of a list or a watch are checked before the form of its answer; in 1.37 the form comes first",
		func(d *difference) bool {
			code := statusOf(d.said[0]).Code
			return d.step.method == http.MethodGet && (code == 400 || code == 422) && strings.HasPrefix(d.said[1], "406\n")
		},
	},
	{
		"1.34: kube-apiserver panics at a JSON patch with a test without a value, or with a path through a null that it sets",
		func(d *difference) bool { return d.panicsAt(testsNoneOrPassesNull) },
	},
	{
		"1.34: causes are repeated two or three times; in 1.37 they are not",
		func(d *difference) bool {
			causes := causesOf(statusOf(d.said[0]))
			slices.Sort(causes)
			return len(slices.Compact(causes)) < len(causesOf(statusOf(d.said[0]))) && inOtherWords(d)
		},
	},
	{
		"1.34: causes of wrong owner references have no index, and missing fields are invalid; in 1.37 they are required",
		func(d *difference) bool { return strings.Contains(d.said[0], "ownerReferences") && inOtherWords(d) },
	},
	{
		"1.34: limits of labels are in characters, not bytes; a label key is a qualified name; a configuration is YAML, not a patch",
		inOtherWords,
	},
}

// testsNoneOrPassesNull returns whether a patch has a test without a value. It also returns true if a path leads
// through a field that an earlier operation may have set to null.
func testsNoneOrPassesNull(patch []operation) bool {
	for at, each := range patch {
		passes := func(later operation) bool { return strings.HasPrefix(later.Path, each.Path+"/") }
		if each.Op == "test" && each.Value == nil || each.setsNull() && slices.ContainsFunc(patch[at+1:], passes) {
			return true
		}
	}
	return false
}

var (
	// scheme matches the name of kube-apiserver's scheme and the rest of the line, since the source line after the name
	// differs too.
	scheme = regexp.MustCompile(`in scheme .*`)
	// dropped matches the fields that 1.34 keeps and 1.37 drops, in JSON or as a line of YAML. It does not match
	// `f:deletionTimestamp` in managedFields, which both versions keep.
	dropped = regexp.MustCompile(`"(?:deletionTimestamp|deletionGracePeriodSeconds|selfLink)":\s*(?:"[^"]*"|-?\d+),?\s*|(?m)^ +(?:deletionTimestamp|deletionGracePeriodSeconds|selfLink): .*\n`)
	index   = regexp.MustCompile(`^(metadata\.ownerReferences)\[\d+\]`)
)

// statusOf returns the Status in an answer. Its code is 0 if the answer is not a Status.
func statusOf(said string) (status metav1.Status) {
	_, body, _ := strings.Cut(said, "\n\n")
	// For protobuf, a note about the envelope follows the JSON (fromProtobuf). The decoder stops before it.
	if yaml.NewYAMLOrJSONDecoder(strings.NewReader(body), 1<<20).Decode(&status) != nil || status.Kind != "Status" {
		return metav1.Status{}
	}
	return status
}

// causesOf returns a line for each cause of a Status.
func causesOf(status metav1.Status) (causes []string) {
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			causes = append(causes, fmt.Sprintf("%s: %s: %s", cause.Field, cause.Type, cause.Message))
		}
	}
	return causes
}

// inOtherWords returns whether both servers refuse a request for the same causes, in the words of 1.34 and of 1.37.
func inOtherWords(d *difference) bool {
	old, now := reworded(statusOf(d.said[0])), reworded(statusOf(d.said[1]))
	if causesAlone := "(the causes)"; old.Message == causesAlone || now.Message == causesAlone {
		// causesInOrder replaces the message of a Status with several causes, but not of one with a single cause. So
		// both messages are dropped.
		old, now = withCausesAlone(old), withCausesAlone(now)
	}
	oldHead, _, _ := strings.Cut(d.said[0], "\n\n")
	head, _, _ := strings.Cut(d.said[1], "\n\n")
	return old.Code >= 400 && oldHead == head && reflect.DeepEqual(old, now)
}

func withCausesAlone(status metav1.Status) metav1.Status {
	if status.Details == nil {
		return status
	}
	return metav1.Status{Code: status.Code, Reason: status.Reason, Details: &metav1.StatusDetails{Causes: status.Details.Causes}}
}

// words translates words of 1.34 to words of 1.37.
var words = strings.NewReplacer(
	"must be no more than 63 characters", "must be no more than 63 bytes",
	"a qualified name must", "a valid label key must",
	"error strict decoding YAML: ", "error strict decoding patch: ",
)

// reworded translates a Status of 1.34 to the words and causes of 1.37. It also removes repeated causes, the indexes of
// ownerReferences, and the part of the message that repeats the causes.
func reworded(status metav1.Status) metav1.Status {
	status.Message = words.Replace(status.Message)
	if status.Details == nil || len(status.Details.Causes) == 0 {
		return status
	}
	status.Message, _, _ = strings.Cut(status.Message, " is invalid: ")
	for at := range status.Details.Causes {
		cause := &status.Details.Causes[at]
		cause.Field, cause.Message = index.ReplaceAllString(cause.Field, "$1"), words.Replace(cause.Message)
		switch {
		case !strings.HasPrefix(cause.Field, "metadata.ownerReferences."):
		case cause.Message == `Invalid value: "": must not be empty`, cause.Message == `Invalid value: "": version must not be empty`:
			cause.Type, cause.Message = metav1.CauseTypeFieldValueRequired, "Required value: must not be empty"
		default:
			cause.Message = strings.Replace(cause.Message, ": version must not be empty", ": must be <group>/<version> or <version>", 1)
		}
	}
	slices.SortFunc(status.Details.Causes, func(a, b metav1.StatusCause) int {
		return strings.Compare(a.Field+a.Message, b.Field+b.Message)
	})
	status.Details.Causes = slices.Compact(status.Details.Causes)
	return status
}
