package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// knownDifference is an accepted difference, with the reason.
type knownDifference struct {
	reason string
	is     func(d *difference) bool
}

// known are the accepted differences. docs/compatibility.md cites this list and the one below.
var known = []knownDifference{
	{
		"versions from before our server's start are gone (410); etcd has those since its last compaction",
		func(d *difference) bool {
			if !before.MatchString(d.firstOf("resourceVersion")) || d.step.method != http.MethodGet {
				return false
			}
			if d.isOfEvents() {
				return goneEvent.MatchString(d.said[1]) && !strings.Contains(d.said[0], `{"type":"ERROR"`)
			}
			return strings.HasPrefix(d.said[0], "200\n") && statusOf(d.said[1]).Reason == metav1.StatusReasonExpired
		},
	},
	{
		"a watch from a future version ends with 410; kube-apiserver waits silently for the version",
		func(d *difference) bool {
			return d.isOfEvents() && d.firstOf("resourceVersion") == future && d.said[0] == "" && futureEvent.MatchString(d.said[1])
		},
	},
	{
		"a dry run of a creation does not show a resourceVersion that is not a number",
		func(d *difference) bool {
			return d.step.method == http.MethodPost && d.firstOf("dryRun") == "All" &&
				noNumber.MatchString(d.said[0]) && withoutNoNumber(d.said[0]) == withoutNoNumber(d.said[1])
		},
	},
	{
		"bytes that are not UTF-8 are replaced in quotations of a message, in protobuf too",
		func(d *difference) bool {
			return strings.Contains(d.said[0], `\ufffd`) && strings.ReplaceAll(d.said[0], `\ufffd`, "\ufffd") == d.said[1]
		},
	},
	{
		"invalid YAML may have several mistakes: each parser reports one, and some mistakes only one parser refuses",
		func(d *difference) bool {
			return d.sendsYAML() && (refusesYAML(d.said[0]) || refusesYAML(d.said[1]))
		},
	},
	{
		"our server knows no kinds besides Leases: it says that an object is not a Lease where kube-apiserver does not know the kind",
		func(d *difference) bool {
			theirs, ours := d.reasonsForNoLease()
			return strings.HasPrefix(theirs, "no kind ") && isOfOtherKind(ours)
		},
	},
	{
		"a strategic merge patch with finalizers to set and to delete applies them in random order",
		func(d *difference) bool {
			return d.step.label == "patch-strategic" && strings.Contains(d.step.body.text, "$deleteFromPrimitiveList/finalizers") && strings.Contains(d.step.body.text, `"finalizers":`)
		},
	},
	{
		"of several mistakes in a strategic merge patch with directives kube-apiserver reports a random one",
		func(d *difference) bool {
			isOfMerging := strings.HasPrefix(d.said[0], "500\n") && strings.HasPrefix(d.said[1], "500\n")
			directives := len(directive.FindAllString(d.step.body.text, -1))
			return d.step.label == "patch-strategic" && refused(d.said[0]) && refused(d.said[1]) && (directives > 1 || directives == 1 && isOfMerging)
		},
	},
	{
		"kube-apiserver loses the further pages of a list of all namespaces that a field selector narrows to one, or repeats the first",
		func(d *difference) bool {
			wide, _, _ := strings.Cut(d.asked[0].target, "?")
			isNarrow := strings.Contains(d.firstOf("fieldSelector"), "metadata.namespace")
			return strings.HasSuffix(wide, "/v1/leases") && strings.HasPrefix(d.firstOf("continue"), "ey") && isNarrow &&
				strings.HasPrefix(d.said[0], "200\n") && strings.HasPrefix(d.said[1], "200\n")
		},
	},
	{
		"kube-apiserver may try a patch on the Lease in its cache, with warnings, before it finds that the Lease is deleted",
		func(d *difference) bool {
			return d.step.method == http.MethodPatch && strings.HasPrefix(d.said[0], "404\n") && warnings.MatchString(d.said[0]) &&
				warnings.ReplaceAllString(d.said[0], "") == d.said[1]
		},
	},
	{
		"kube-apiserver shares encoded events among watches of Tables, so that a later event may have the columns, or the first none",
		func(d *difference) bool {
			return d.isOfEvents() && columns.ReplaceAllString(d.said[0], "") == columns.ReplaceAllString(d.said[1], "")
		},
	},
	{
		"kube-apiserver panics at a JSON patch that tests a whole Lease for no value, or a list with a null",
		func(d *difference) bool { return d.panicsAt(testsWholeOrNull) },
	},
	{
		"an object with a control character is not valid YAML for kube-apiserver, which answers 500; our server escapes the character",
		func(d *difference) bool {
			return strings.HasPrefix(d.said[0], "500\n") && statusOf(d.said[0]).Message == "yaml: control characters are not allowed" &&
				strings.HasPrefix(d.said[1], "20") && escaped.MatchString(d.said[1])
		},
	},
	{
		"a namespace in the path that is not UTF-8 is quoted byte by byte in a message",
		func(d *difference) bool {
			return strings.Contains(d.asked[1].target, "/namespaces/%E9/") && bytewise.Replace(d.said[0]) == d.said[1]
		},
	},
	{
		"a protobuf body of another kind is refused without being decoded",
		func(d *difference) bool {
			theirs, ours := d.reasonsForNoLease()
			isOfProtobuf := strings.HasPrefix(theirs, "proto: ") || strings.HasPrefix(theirs, "unexpected EOF")
			return strings.Contains(d.step.template(), "[Content-Type: application/vnd.kubernetes.protobuf]") && isOfProtobuf && isOfOtherKind(ours)
		},
	},
}

// notSent names requests that no sequence contains, because the servers would stay different after them.
//
//   - A deletion of a collection whose answer is not acceptable, as metadata of one object: kube-apiserver deletes, and then
//     finds that it cannot answer (406). Our server refuses before it deletes.
//   - A deletion of a collection at a version since which a Lease was deleted and created again: kube-apiserver deletes the
//     new Lease by its name. Our server keeps it.

// columns matches the columns of a Table.
var columns = regexp.MustCompile(`"columnDefinitions":(?:null|\[(?:\{[^}]*\},?)*\])`)

// refused returns whether the status is an error.
func refused(said string) bool { return said[0] == '4' || said[0] == '5' }

// notYAML replaces the parser's words about a text that is not YAML.
const notYAML = "yaml: (not understood)"

// before matches a version from before our server's start.
var before = regexp.MustCompile(`^0*1$`)

var (
	// The only event of a watch that our server ends, in JSON or protobuf.
	goneEvent   = regexp.MustCompile(`^{"type":"ERROR","object":{[^\n]*"message":"too old resource version: [^\n]*"code":410}}(?:\nenvelope "" "")?$`)
	futureEvent = regexp.MustCompile(`^{"type":"ERROR","object":{[^\n]*"message":"resource version ` + future + ` is above the newest, [^\n]*"code":410}}(?:\nenvelope "" "")?$`)
	noNumber    = regexp.MustCompile(`"?resourceVersion"?:\s*(?:"x"|x\b),?`)
	spaces      = regexp.MustCompile(`\s+`)
	directive   = regexp.MustCompile(`"\$[a-zA-Z]`) // `"${` begins a symbol
	warnings    = regexp.MustCompile(`(?m)^Warning: .*\n`)
	// Of a control character, in double-quoted YAML.
	escaped = regexp.MustCompile(`\\x[0-9A-F]{2}`)
	// bytewise rewrites kube-apiserver's quotation of the byte E9, in JSON and YAML.
	bytewise = strings.NewReplacer(`\\xe9`, "\ufffd", `\xe9`, "\ufffd", `\ufffd`, "\ufffd")
)

// firstOf returns the first value of a query parameter. Both servers ignore the others.
func (d *difference) firstOf(parameter string) string {
	_, query, _ := strings.Cut(d.asked[1].target, "?")
	values, _ := url.ParseQuery(query) // without the malformed pairs
	return values.Get(parameter)
}

// isOfEvents returns whether the events of a watch differ.
func (d *difference) isOfEvents() bool { return strings.HasSuffix(d.step.label, " events") }

// withoutNoNumber removes the version "x", and what a removal of fields leaves in different forms.
func withoutNoNumber(said string) string {
	return strings.ReplaceAll(spaces.ReplaceAllString(noNumber.ReplaceAllString(said, ""), ""), "{}", "")
}

// sendsYAML returns whether a server parses the body as YAML.
func (d *difference) sendsYAML() bool {
	for _, field := range d.step.header {
		if field[0] == "Content-Type" && strings.Contains(field[1], "yaml") {
			return true
		}
	}
	return false
}

// refusesYAML returns whether a server refuses a body for its YAML.
func refusesYAML(said string) bool {
	return statusOf(said).Code == http.StatusBadRequest && strings.Contains(said, "yaml: ")
}

// reasonsForNoLease returns why the servers cannot handle a body as a Lease. The answers are the same up to there.
func (d *difference) reasonsForNoLease() (theirs, ours string) {
	const reason = " cannot be handled as a Lease: "
	var before [2]string
	var after [2]string
	for at := range before {
		head, _, _ := strings.Cut(d.said[at], "\n\n")
		status := statusOf(d.said[at])
		subject, why, is := strings.Cut(status.Message, reason)
		if !is || status.Code != http.StatusBadRequest {
			return "", ""
		}
		before[at], after[at] = head+subject, why
	}
	if before[0] != before[1] {
		return "", ""
	}
	return after[0], after[1]
}

// isOfOtherKind returns whether a reason is our server's for a body that is not a Lease.
func isOfOtherKind(reason string) bool {
	return strings.HasPrefix(reason, "converting (") && strings.HasSuffix(reason, " to (coordination.Lease): unknown conversion")
}

// operation is one of a JSON patch. Its value is nil if it has none.
type operation struct {
	Op, Path string
	Value    json.RawMessage
}

// setsNull returns whether an operation may set a null. An operation without a value adds null.
func (o *operation) setsNull() bool {
	return bytes.Contains(o.Value, []byte("null")) || o.Value == nil && (o.Op == "add" || o.Op == "replace")
}

// panicsAt returns whether kube-apiserver hangs up at a JSON patch that our server answers, and whether the operations
// are some that cause it.
func (d *difference) panicsAt(isCause func([]operation) bool) bool {
	var operations []operation
	return d.step.label == "patch-json" && strings.HasSuffix(d.said[0], ": "+hungUp) && !strings.HasPrefix(d.said[1], "0\n") &&
		json.Unmarshal(d.asked[0].body, &operations) == nil && isCause(operations)
}

// testsWholeOrNull returns whether a patch tests the whole Lease for no value, or tests a value and may set a null.
func testsWholeOrNull(patch []operation) bool {
	setsNull := slices.ContainsFunc(patch, func(each operation) bool { return each.setsNull() })
	return slices.ContainsFunc(patch, func(each operation) bool {
		return each.Op == "test" && (setsNull || each.Path == "" && each.Value == nil)
	})
}

func knownReason(known []knownDifference, d *difference) (string, bool) {
	for _, known := range known {
		if known.is(d) {
			return known.reason, true
		}
	}
	return "", false
}

// rewritings unify texts that are for people only, or that differ between kube-apiservers.
var rewritings = []struct {
	reason  string
	pattern *regexp.Regexp
	rewrite func(string) string
}{
	{
		"kube-apiserver's name for its scheme depends on where it was compiled",
		regexp.MustCompile(`in scheme \\*"[a-z/]+\.go:\d+`),
		func(string) string { return "in scheme (one of kube-apiserver's)" },
	},
	{
		"kube-apiserver iterates over maps in random order, so the order of the errors of an applied configuration is random",
		regexp.MustCompile(`errors:(?:\\n  |\n  )(?:[^"\\]|\\[^"n]|\\"|\\n  )*`),
		func(list string) string {
			separator := "\n  "
			if strings.Contains(list, `\n  `) {
				separator = `\n  `
			}
			each := strings.Split(strings.TrimPrefix(list, "errors:"+separator), separator)
			sort.Strings(each)
			return "errors:" + separator + strings.Join(each, separator)
		},
	},
	{
		"in the same random order kube-apiserver stops at the first field that is not in the schema",
		regexp.MustCompile(`failed to create typed patch object (?:[^"\\]|\\.)*?field not declared in schema(?:[^"\\]|\\.)*`),
		func(string) string { return "failed to create typed patch object: field not declared in schema" },
	},
	{
		"the words about invalid YAML are the parser's",
		regexp.MustCompile(`(yaml: )(line \d+: )?(did not find|could not find|mapping values|found (character|unexpected)|block sequence|unclosed|unexpected|expected|invalid|while|simple key|tabs|[a-z ]*bracket)[^"]*`),
		func(string) string { return notYAML },
	},
	{
		"how far a UID, which is random, looks like a time",
		regexp.MustCompile(`parsing time \\*"\$\{uid \d+\}\\*" as \\*"[^"\\]*\\*": cannot parse \\*"[^"\\]*\\*" as \\*"[^"\\]*\\*"`),
		func(string) string { return "parsing time (a UID)" },
	},
	{
		"the form of a strategic merge patch whose result is not a Lease: kube-apiserver shows the part that merging has left",
		regexp.MustCompile(`Invalid value: \\"map\[(?:[^"\\]|\\.)*?\]\\": `),
		func(string) string { return "Invalid value: (the patch): " },
	},
	{
		"the result of a refused patch is shown in alphabetical order; kube-apiserver shows unchanged parts in their order",
		regexp.MustCompile(`patch: Invalid value: \\"(?:[^"\\]|\\\\|\\[^"\\]|\\\\\\")*\\": |Invalid value: \\"\{(?:[^"\\]|\\\\|\\[^"\\]|\\\\\\")*\\": `),
		inOrder,
	},
	{
		"numbers in a patch are parsed before they are refused",
		regexp.MustCompile(`Invalid value: \{.*?json: cannot unmarshal number \S+ into`),
		func(text string) string { return text[:strings.LastIndex(text, "number ")] },
	},
}

// bare matches a number that was replaced by a name.
var bare = regexp.MustCompile(`:(\$\{[^}]*\})`)

// odd matches numbers that can be written in several ways.
var odd = regexp.MustCompile(`":-?\d+(?:[.eE][-+.eE\d]*)?`)

// plain writes a number in one way.
func plain(member string) string {
	number, _ := strconv.ParseFloat(member[2:], 64)
	return fmt.Sprintf(`":%g`, min(number, 1e300)+0)
}

var shown = regexp.MustCompile(`Invalid value: \\"(.*)\\": $`)

// inOrder rewrites the JSON that a message shows. It is quoted as text inside a JSON string.
func inOrder(message string) string {
	inner := shown.FindStringSubmatch(message)
	if inner == nil {
		return message
	}
	text := inner[1]
	for range 2 {
		unquoted, err := strconv.Unquote(`"` + text + `"`)
		if err != nil {
			return message
		}
		text = unquoted
	}
	text = bare.ReplaceAllString(text, `:"$1"`)
	var value any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return message
	}
	ordered, _ := json.Marshal(value)
	return "Invalid value: " + odd.ReplaceAllStringFunc(string(ordered), plain) + ": "
}

// causesInOrder sorts the causes in a Status where kube-apiserver's order is random: conflicts of an apply, and causes
// of labels and annotations. The message repeats the latter.
func causesInOrder(text string) string {
	var status struct {
		Kind, Message, Reason string
		Code                  int
		Details               struct {
			Causes []struct{ Reason, Message, Field string }
		}
	}
	object, note, _ := strings.Cut(text, "\nenvelope")
	if json.Unmarshal([]byte(object), &status) != nil || status.Kind != "Status" || len(status.Details.Causes) < 2 {
		return text
	}
	isOfMap := false
	for _, cause := range status.Details.Causes {
		isOfMap = isOfMap || cause.Field == "metadata.labels" || cause.Field == "metadata.annotations"
	}
	if isOfMap {
		status.Message = "(the causes)"
	} else if status.Reason != "Conflict" {
		return text
	}
	causes := status.Details.Causes
	sort.Slice(causes, func(a, b int) bool {
		return causes[a].Field+causes[a].Message < causes[b].Field+causes[b].Message
	})
	ordered, _ := json.Marshal(status)
	return string(ordered) + note
}
