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

// knownDifference is a kind of accepted difference, with the reason.
type knownDifference struct {
	reason string
	is     func(d *difference) bool
}

// known has the accepted differences from kube-apiserver of any version. docs/compatibility.md refers to this list.
var known = []knownDifference{
	{
		"our server answers 410 for resourceVersions from before its start; kube-apiserver has those since etcd's last compaction",
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
		"our server's dry run of a creation does not return a resourceVersion that is not a number",
		func(d *difference) bool {
			return d.step.method == http.MethodPost && d.firstOf("dryRun") == "All" &&
				noNumber.MatchString(d.said[0]) && withoutNoNumber(d.said[0]) == withoutNoNumber(d.said[1])
		},
	},
	{
		"in quotations of a message, our server replaces bytes that are not UTF-8 by U+FFFD, in protobuf too",
		func(d *difference) bool {
			return strings.Contains(d.said[0], `\ufffd`) && strings.ReplaceAll(d.said[0], `\ufffd`, "\ufffd") == d.said[1]
		},
	},
	{
		"invalid YAML may have several mistakes: each parser reports a different one, and only one parser refuses some mistakes",
		func(d *difference) bool {
			return d.sendsYAML() && (refusesYAML(d.said[0]) || refusesYAML(d.said[1]))
		},
	},
	{
		"for an object of an unknown kind, our server answers that it is not a Lease; kube-apiserver answers that the kind is unknown",
		func(d *difference) bool {
			theirs, ours := d.reasonsForNoLease()
			return strings.HasPrefix(theirs, "no kind ") && isOfOtherKind(ours)
		},
	},
	{
		"kube-apiserver applies a strategic merge patch that both sets and deletes finalizers in random order",
		func(d *difference) bool {
			return d.step.label == "patch-strategic" && strings.Contains(d.step.body.text, "$deleteFromPrimitiveList/finalizers") && strings.Contains(d.step.body.text, `"finalizers":`)
		},
	},
	{
		"if a strategic merge patch with directives has several mistakes, kube-apiserver reports a random one",
		func(d *difference) bool {
			isOfMerging := strings.HasPrefix(d.said[0], "500\n") && strings.HasPrefix(d.said[1], "500\n")
			directives := len(directive.FindAllString(d.step.body.text, -1))
			return d.step.label == "patch-strategic" && refused(d.said[0]) && refused(d.said[1]) && (directives > 1 || directives == 1 && isOfMerging)
		},
	},
	{
		"for a list of all namespaces with a field selector for one namespace, kube-apiserver loses further pages or repeats the first",
		func(d *difference) bool {
			wide, _, _ := strings.Cut(d.asked[0].target, "?")
			isNarrow := strings.Contains(d.firstOf("fieldSelector"), "metadata.namespace")
			return strings.HasSuffix(wide, "/v1/leases") && strings.HasPrefix(d.firstOf("continue"), "ey") && isNarrow &&
				strings.HasPrefix(d.said[0], "200\n") && strings.HasPrefix(d.said[1], "200\n")
		},
	},
	{
		"kube-apiserver may apply a patch to the Lease in its cache, and warn, before it notices that the Lease is deleted",
		func(d *difference) bool {
			return d.step.method == http.MethodPatch && strings.HasPrefix(d.said[0], "404\n") && warnings.MatchString(d.said[0]) &&
				warnings.ReplaceAllString(d.said[0], "") == d.said[1]
		},
	},
	{
		"kube-apiserver shares encoded events among watches of Tables, so a later event may have column definitions, or the first one may lack them",
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
		"if the namespace in a path is not UTF-8, messages of kube-apiserver quote it byte by byte",
		func(d *difference) bool {
			return strings.Contains(d.asked[1].target, "/namespaces/%E9/") && bytewise.Replace(d.said[0]) == d.said[1]
		},
	},
	{
		"our server refuses a protobuf body of another kind without decoding it",
		func(d *difference) bool {
			theirs, ours := d.reasonsForNoLease()
			isOfProtobuf := strings.HasPrefix(theirs, "proto: ") || strings.HasPrefix(theirs, "unexpected EOF")
			return strings.Contains(d.step.template(), "[Content-Type: application/vnd.kubernetes.protobuf]") && isOfProtobuf && isOfOtherKind(ours)
		},
	},
}

// notSent: no sequence contains these requests, since the servers would have different Leases afterwards.
//
//   - A deletion of a collection whose response would have to be the metadata of a single object. kube-apiserver
//     deletes the Leases, and then answers 406. Our server answers 406 and deletes nothing.
//   - A deletion of a collection at a resourceVersion after which a Lease was deleted and created again. kube-apiserver
//     deletes the new Lease, by its name. Our server keeps the new Lease.

// columns matches the columns of a Table.
var columns = regexp.MustCompile(`"columnDefinitions":(?:null|\[(?:\{[^}]*\},?)*\])`)

// refused returns whether the status of an answer is 4xx or 5xx.
func refused(said string) bool { return said[0] == '4' || said[0] == '5' }

// notYAML is the text that replaces a parser's message about invalid YAML.
const notYAML = "yaml: (not understood)"

// before matches the resourceVersion 1, which is from before our server's start.
var before = regexp.MustCompile(`^0*1$`)

var (
	// goneEvent and futureEvent match the events of a watch, in JSON or protobuf: a single ERROR event with 410 from
	// our server.
	goneEvent   = regexp.MustCompile(`^{"type":"ERROR","object":{[^\n]*"message":"too old resource version: [^\n]*"code":410}}(?:\nenvelope "" "")?$`)
	futureEvent = regexp.MustCompile(`^{"type":"ERROR","object":{[^\n]*"message":"resource version ` + future + ` is above the newest, [^\n]*"code":410}}(?:\nenvelope "" "")?$`)
	noNumber    = regexp.MustCompile(`"?resourceVersion"?:\s*(?:"x"|x\b),?`)
	spaces      = regexp.MustCompile(`\s+`)
	directive   = regexp.MustCompile(`"\$[a-zA-Z]`) // `"${` begins a symbol
	warnings    = regexp.MustCompile(`(?m)^Warning: .*\n`)
	// escaped matches the escape of a control character, in double-quoted YAML.
	escaped = regexp.MustCompile(`\\x[0-9A-F]{2}`)
	// bytewise replaces kube-apiserver's quotation of the byte E9 by that of our server, in JSON and YAML.
	bytewise = strings.NewReplacer(`\\xe9`, "\ufffd", `\xe9`, "\ufffd", `\ufffd`, "\ufffd")
)

// firstOf returns the first value of a query parameter. Both servers ignore further values.
func (d *difference) firstOf(parameter string) string {
	_, query, _ := strings.Cut(d.asked[1].target, "?")
	values, _ := url.ParseQuery(query) // without the malformed pairs
	return values.Get(parameter)
}

// isOfEvents returns whether the events of a watch differ.
func (d *difference) isOfEvents() bool { return strings.HasSuffix(d.step.label, " events") }

// withoutNoNumber removes the resourceVersion "x" from an answer. It also removes white space and empty objects, since
// these depend on the form from which a field is removed.
func withoutNoNumber(said string) string {
	return strings.ReplaceAll(spaces.ReplaceAllString(noNumber.ReplaceAllString(said, ""), ""), "{}", "")
}

// sendsYAML returns whether the Content-Type of the request is YAML.
func (d *difference) sendsYAML() bool {
	for _, field := range d.step.header {
		if field[0] == "Content-Type" && strings.Contains(field[1], "yaml") {
			return true
		}
	}
	return false
}

// refusesYAML returns whether a server answers that a body is invalid YAML.
func refusesYAML(said string) bool {
	return statusOf(said).Code == http.StatusBadRequest && strings.Contains(said, "yaml: ")
}

// reasonsForNoLease returns the reasons for which the servers cannot handle a body as a Lease. It returns none if the
// answers already differ before the reason.
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

// isOfOtherKind returns whether a reason is that of our server for an object of another kind.
func isOfOtherKind(reason string) bool {
	return strings.HasPrefix(reason, "converting (") && strings.HasSuffix(reason, " to (coordination.Lease): unknown conversion")
}

// operation is an operation of a JSON patch. Value is nil if the operation has no value.
type operation struct {
	Op, Path string
	Value    json.RawMessage
}

// setsNull returns whether an operation may set a field to null. An operation add or replace without a value does so.
func (o *operation) setsNull() bool {
	return bytes.Contains(o.Value, []byte("null")) || o.Value == nil && (o.Op == "add" || o.Op == "replace")
}

// panicsAt returns whether a JSON patch meets three conditions: kube-apiserver hung up, our server answered, and
// isCause returns true.
func (d *difference) panicsAt(isCause func([]operation) bool) bool {
	var operations []operation
	return d.step.label == "patch-json" && strings.HasSuffix(d.said[0], ": "+hungUp) && !strings.HasPrefix(d.said[1], "0\n") &&
		json.Unmarshal(d.asked[0].body, &operations) == nil && isCause(operations)
}

// testsWholeOrNull returns whether a patch tests the whole Lease without a value. It also returns true for a patch that
// has a test and may set a field to null.
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

// rewritings replace parts of messages that are only for people, or that differ between kube-apiservers.
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
		"a parser refuses a random UID in place of a time at the first character that does not fit",
		regexp.MustCompile(`parsing time \\*"\$\{uid \d+\}\\*" as \\*"[^"\\]*\\*": cannot parse \\*"[^"\\]*\\*" as \\*"[^"\\]*\\*"`),
		func(string) string { return "parsing time (a UID)" },
	},
	{
		"the form of a strategic merge patch whose result is not a Lease: kube-apiserver shows the part that merging has left",
		regexp.MustCompile(`Invalid value: \\"map\[(?:[^"\\]|\\.)*?\]\\": `),
		func(string) string { return "Invalid value: (the patch): " },
	},
	{
		"our server shows the result of a refused patch in alphabetical order; kube-apiserver shows unchanged parts in their order",
		regexp.MustCompile(`patch: Invalid value: \\"(?:[^"\\]|\\\\|\\[^"\\]|\\\\\\")*\\": |Invalid value: \\"\{(?:[^"\\]|\\\\|\\[^"\\]|\\\\\\")*\\": `),
		inOrder,
	},
	{
		"and so it lists the unknown fields of the result",
		regexp.MustCompile(`\}[\\"]*: strict decoding error: (?:unknown field \\+"[^"\\]+\\+"(?:, )?){2,}`),
		unknownInOrder,
	},
	{
		"numbers in a patch are parsed before they are refused",
		regexp.MustCompile(`Invalid value: \{.*?json: cannot unmarshal number \S+ into`),
		func(text string) string { return text[:strings.LastIndex(text, "number ")] },
	},
}

// bare matches a symbol in place of a JSON number. Such a symbol has no quotes.
var bare = regexp.MustCompile(`:(\$\{[^}]*\})`)

// odd matches a number as the value of a JSON member. The same number can be written in several ways.
var odd = regexp.MustCompile(`":-?\d+(?:[.eE][-+.eE\d]*)?`)

// plain returns a JSON member with its number in one form.
func plain(member string) string {
	number, _ := strconv.ParseFloat(member[2:], 64)
	return fmt.Sprintf(`":%g`, min(number, 1e300)+0)
}

// unknownInOrder sorts the unknown fields in a message.
func unknownInOrder(message string) string {
	before, list, _ := strings.Cut(message, "unknown field ")
	fields := strings.Split(list, ", unknown field ")
	sort.Strings(fields)
	return before + strings.Join(fields, ", ")
}

var shown = regexp.MustCompile(`Invalid value: \\"(.*)\\": $`)

// inOrder sorts the members of the JSON in a message. This JSON is quoted twice: as text in the message, and with the
// message in the JSON of the answer.
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

// causesInOrder sorts the causes in a Status if kube-apiserver's order is random. That is so for conflicts of an apply,
// and for causes about labels and annotations. The message repeats causes about labels and annotations, and is then
// replaced too.
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
