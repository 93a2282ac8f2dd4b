package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// knownDifference is one that may be, and why.
type knownDifference struct {
	reason string
	is     func(d *difference) bool
}

// known are the differences that are left, and why. docs/compatibility.md cites this list, and the one below.
var known = []knownDifference{
	{
		"versions from before our server's start are gone (410); etcd has those from before its last compaction",
		func(d *difference) bool {
			return before.MatchString(d.asked[1].target)
		},
	},
	{
		"a watch from a version to come ends with 410; kube-apiserver waits for the version without a word",
		func(d *difference) bool {
			return strings.HasPrefix(d.step.label, "watch") && strings.Contains(d.asked[1].target, "resourceVersion="+future) && strings.Contains(d.said[1], "is above the newest")
		},
	},
	{
		"a dry run of a creation that names a version which is no number does not show it",
		func(d *difference) bool {
			return strings.Contains(d.asked[1].target, "dryRun=All") && strings.Contains(d.said[0], "resourceVersion\": \"x\"") || strings.Contains(d.said[0], "resourceVersion\":\"x\"") || strings.Contains(d.said[0], "resourceVersion: x")
		},
	},
	{
		"bytes that are no UTF-8 and are quoted in a message are replaced in protobuf too",
		func(d *difference) bool {
			return strings.Contains(d.said[0], `\ufffd`) && strings.ReplaceAll(d.said[0], `\ufffd`, "\ufffd") == d.said[1]
		},
	},
	{
		"a text that is no YAML may have several mistakes, of which each parser tells one, and mistakes that only one of them minds",
		func(d *difference) bool {
			spoiled := d.step.body.encoding == "yaml" && !json.Valid([]byte(d.step.body.text))
			return spoiled || strings.Contains(d.said[0], notYAML) || strings.Contains(d.said[1], notYAML)
		},
	},
	{
		"which kinds there are besides Leases is not known here: one is said to be no Lease, when kube-apiserver does not know it at all",
		func(d *difference) bool {
			return strings.Contains(d.said[0], "no kind ") && strings.Contains(d.said[1], "unknown conversion")
		},
	},
	{
		"a strategic merge patch that names finalizers and finalizers to delete does the one or the other first, at random",
		func(d *difference) bool {
			return d.step.label == "patch-strategic" && strings.Contains(d.step.body.text, "$deleteFromPrimitiveList/finalizers") && strings.Contains(d.step.body.text, `"finalizers":`)
		},
	},
	{
		"of several wrong directives in a strategic merge patch kube-apiserver tells of any, in random order",
		func(d *difference) bool {
			return d.step.label == "patch-strategic" && refused(d.said[0]) && refused(d.said[1]) && strings.Count(d.step.body.text, "\"$") > 1
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
		"kube-apiserver may try a patch on what its cache still has, with warnings, before it finds that the Lease has gone",
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
		"an object with a control character in it is no YAML to kube-apiserver, which then fails with 500; ours is escaped",
		func(d *difference) bool {
			return strings.HasPrefix(d.said[0], "500\n") && strings.Contains(d.said[0], "yaml: control characters are not allowed")
		},
	},
	{
		"a namespace in the path that is no UTF-8 is quoted byte by byte in a message",
		func(d *difference) bool { return strings.Contains(d.asked[1].target, "/namespaces/%E9/") },
	},
	{
		"a body in protobuf of another kind is refused without being decoded",
		func(d *difference) bool {
			return strings.Contains(d.said[1], "unknown conversion") && strings.Contains(d.step.template(), "[Content-Type: application/vnd.kubernetes.protobuf]")
		},
	},
}

// notSent is what no sequence asks for, since the servers differ in it and would stay different.
//
//   - A deletion of a collection whose answer is not acceptable, as metadata of one object: kube-apiserver deletes, and then
//     finds out that it cannot answer (406). Ours refuses before it deletes.
//   - A deletion of a collection as of a version since which a Lease has gone and come again: kube-apiserver deletes it, by
//     its name. Ours leaves it.

// columns are those of a Table.
var columns = regexp.MustCompile(`"columnDefinitions":(?:null|\[(?:\{[^}]*\},?)*\])`)

// refused tells whether a server said that it will not or cannot.
func refused(said string) bool { return said[0] == '4' || said[0] == '5' }

// notYAML is said of a text that the parser does not understand.
const notYAML = "yaml: (not understood)"

// before finds a version that is older than our server.
var before = regexp.MustCompile(`resourceVersion=0*1(&|$)`)

func knownReason(known []knownDifference, d *difference) (string, bool) {
	for _, known := range known {
		if known.is(d) {
			return known.reason, true
		}
	}
	return "", false
}

// rewritings make alike what differs in texts for people alone, or differs from one kube-apiserver to the next.
var rewritings = []struct {
	reason  string
	pattern *regexp.Regexp
	rewrite func(string) string
}{
	{
		"where a kube-apiserver was compiled decides what it calls its own scheme",
		regexp.MustCompile(`in scheme \\*"[a-z/]+\.go:\d+`),
		func(string) string { return "in scheme (one of kube-apiserver's)" },
	},
	{
		"kube-apiserver walks maps in random order: it lists what is wrong with an applied configuration in any order",
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
		"in the same random order it stops at the first field that is not in the schema",
		regexp.MustCompile(`failed to create typed patch object (?:[^"\\]|\\.)*?field not declared in schema(?:[^"\\]|\\.)*`),
		func(string) string { return "failed to create typed patch object: field not declared in schema" },
	},
	{
		"the words about a text that is no YAML are those of the parser",
		regexp.MustCompile(`(yaml: )(line \d+: )?(did not find|could not find|mapping values|found (character|unexpected)|block sequence|unclosed|unexpected|expected|invalid|while|simple key|tabs|[a-z ]*bracket)[^"]*`),
		func(string) string { return notYAML },
	},
	{
		"how far a UID, of which none is like another, looks like a time",
		regexp.MustCompile(`parsing time \\*"\$\{uid \d+\}\\*" as \\*"[^"\\]*\\*": cannot parse \\*"[^"\\]*\\*" as \\*"[^"\\]*\\*"`),
		func(string) string { return "parsing time (a UID)" },
	},
	{
		"what a strategic merge patch that led to no Lease is shown as: kube-apiserver shows what merging has left of it",
		regexp.MustCompile(`Invalid value: \\"map\[(?:[^"\\]|\\.)*?\]\\": `),
		func(string) string { return "Invalid value: (the patch): " },
	},
	{
		"the object that a refused patch led to is shown in alphabetical order; kube-apiserver shows what it left alone as it was",
		regexp.MustCompile(`patch: Invalid value: \\"(?:[^"\\]|\\\\|\\[^"\\]|\\\\\\")*\\": |Invalid value: \\"\{(?:[^"\\]|\\\\|\\[^"\\]|\\\\\\")*\\": `),
		inOrder,
	},
	{
		"numbers in a patch are read before they are refused",
		regexp.MustCompile(`Invalid value: \{.*?json: cannot unmarshal number \S+ into`),
		func(text string) string { return text[:strings.LastIndex(text, "number ")] },
	},
}

// bare is a number that was named.
var bare = regexp.MustCompile(`:(\$\{[^}]*\})`)

// odd are numbers that can be written in several ways.
var odd = regexp.MustCompile(`":-?\d+(?:[.eE][-+.eE\d]*)?`)

// plain writes a number in one way.
func plain(member string) string {
	number, _ := strconv.ParseFloat(member[2:], 64)
	return fmt.Sprintf(`":%g`, min(number, 1e300)+0)
}

var shown = regexp.MustCompile(`Invalid value: \\"(.*)\\": $`)

// inOrder rewrites the JSON that a message shows, which is quoted as text and stands in a string of JSON.
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

// causesInOrder sorts the causes in a Status where kube-apiserver names them in random order: those of labels and
// annotations, which it walks as a map and whose words are repeated in the message, and the conflicts of an apply.
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
