package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
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
			return before.MatchString(d.asked[1].target)
		},
	},
	{
		"a watch from a future version ends with 410; kube-apiserver waits silently for the version",
		func(d *difference) bool {
			return strings.HasPrefix(d.step.label, "watch") && strings.Contains(d.asked[1].target, "resourceVersion="+future) && strings.Contains(d.said[1], "is above the newest")
		},
	},
	{
		"a dry run of a creation does not show a resourceVersion that is not a number",
		func(d *difference) bool {
			return strings.Contains(d.asked[1].target, "dryRun=All") && (strings.Contains(d.said[0], "resourceVersion\": \"x\"") || strings.Contains(d.said[0], "resourceVersion\":\"x\"") || strings.Contains(d.said[0], "resourceVersion: x"))
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
			spoiled := d.step.body.encoding == "yaml" && !json.Valid([]byte(d.step.body.text))
			return spoiled || strings.Contains(d.said[0], notYAML) || strings.Contains(d.said[1], notYAML)
		},
	},
	{
		"our server knows no kinds besides Leases: it says that an object is not a Lease where kube-apiserver does not know the kind",
		func(d *difference) bool {
			return strings.Contains(d.said[0], "no kind ") && strings.Contains(d.said[1], "unknown conversion")
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
			directives := strings.Count(d.step.body.text, "\"$")
			return d.step.label == "patch-strategic" && refused(d.said[0]) && refused(d.said[1]) && (directives > 1 || directives == 1 && isOfMerging)
		},
	},
	{
		"kube-apiserver loses the further pages of a list of all namespaces that a field selector narrows to one",
		func(d *difference) bool {
			wide, query, _ := strings.Cut(d.asked[0].target, "?")
			return strings.HasSuffix(wide, "/v1/leases") && strings.Contains(query, "continue=ey") && strings.Contains(query, "metadata.namespace")
		},
	},
	{
		"kube-apiserver may try a patch on the Lease in its cache, with warnings, before it finds that the Lease is deleted",
		func(d *difference) bool {
			return strings.HasPrefix(d.said[0], "404\n") && strings.HasPrefix(d.said[1], "404\n") && strings.Contains(d.said[0], "\nWarning: ")
		},
	},
	{
		"kube-apiserver shares encoded events among watches of Tables, so that a later event may have the columns, or the first none",
		func(d *difference) bool {
			return strings.HasSuffix(d.step.label, "events") && columns.ReplaceAllString(d.said[0], "") == columns.ReplaceAllString(d.said[1], "")
		},
	},
	{
		"kube-apiserver panics",
		func(d *difference) bool {
			return strings.HasPrefix(d.said[0], "0\n") && !strings.HasPrefix(d.said[1], "0\n")
		},
	},
	{
		"an object with a control character is not valid YAML for kube-apiserver, which answers 500; our server escapes the character",
		func(d *difference) bool {
			return strings.HasPrefix(d.said[0], "500\n") && strings.Contains(d.said[0], "yaml: control characters are not allowed")
		},
	},
	{
		"a namespace in the path that is not UTF-8 is quoted byte by byte in a message",
		func(d *difference) bool { return strings.Contains(d.asked[1].target, "/namespaces/%E9/") },
	},
	{
		"a protobuf body of another kind is refused without being decoded",
		func(d *difference) bool {
			return strings.Contains(d.said[1], "unknown conversion") && strings.Contains(d.step.template(), "[Content-Type: application/vnd.kubernetes.protobuf]")
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
var before = regexp.MustCompile(`resourceVersion=0*1(&|$)`)

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
