package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"sort"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/framer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// normal is an answer with symbols in place of the values that must differ between the servers.
type normal struct {
	text  string      // status, headers and body, line by line
	times []time.Time // times that symbols have replaced, in their order
}

// ignored has the headers that are not compared. They describe the connection, the request or the server, or depend on
// the length of values that differ.
var ignored = map[string]bool{
	"Audit-Id": true, "Content-Length": true, "Date": true, "Connection": true, "Transfer-Encoding": true,
	// Headers of API Priority and Fairness, which our server does not have.
	"X-Kubernetes-Pf-Flowschema-Uid": true, "X-Kubernetes-Pf-Prioritylevel-Uid": true,
}

var (
	uid     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	second  = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:Z| \+0000 UTC)`)
	version = regexp.MustCompile(`(resourceVersion\\*"?:\s*\\*"?)(\d{2,})`)
	told    = regexp.MustCompile(`((?i:resource ?version)[^"(]{0,40}\(|in record \(|ResourceVersion in object meta: |resource version: |resourceVersion: Invalid value: (?:\\")?|strconv.ParseUint: parsing \\*")(\d{2,})`)
	// Generated names begin with a generateName from the method create, and end with five of these characters.
	generated = regexp.MustCompile(`\bg\d+-(?:UPPER|é)?[bcdfghjklmnpqrstvwxz2456789]{5,}`)
	current   = regexp.MustCompile(`(, current: )\d+`)
	next      = regexp.MustCompile(`("?continue"?:\s*"?)([A-Za-z0-9_=-]{20,})`)
	age       = regexp.MustCompile(`("cells":\s*\[\s*"[^]]*?,\s*)"\d+[smh][0-9smh]*"(\s*\])`)
	yamlAge   = regexp.MustCompile(`(?m)^(  - )\d+[smh][0-9smh]*$`)
	yamlList  = regexp.MustCompile(`(?m)^(  resourceVersion: ")(\d+)"`)
	tableKind = regexp.MustCompile(`(?m)^kind: Table$`)
	listKind  = regexp.MustCompile(`(?m)^kind: \w*List$`)
)

// normalOf replaces the varying values in an answer. The resourceVersion in the request's target decides how the
// resourceVersion of a list is replaced. If learns is true, normalOf also remembers the values. Pass true only if both
// servers answered with success.
func (m *memory) normalOf(answer answer, asked message, learns bool) normal {
	var lines []string
	for name, values := range answer.header {
		if !ignored[name] {
			if name == "Warning" && asked.method == http.MethodPatch {
				sort.Strings(values) // their order is random in kube-apiserver
			}
			lines = append(lines, name+": "+strings.Join(values, "\n"+name+": "))
		}
	}
	sort.Strings(lines)
	head := fmt.Sprintf("%d\n%s\n", answer.status, strings.Join(lines, "\n"))
	text, decoded := readable(answer.header.Get("Content-Type"), answer.body)
	if learns {
		m.learn(decoded)
	}
	if answer.status >= 400 {
		text = causesInOrder(inJSON(text))
	}
	normal := m.name(m.withoutListVersion(text, asked.target))
	normal.text = head + "\n" + normal.text
	return normal
}

// inJSON converts a Status from YAML to JSON if rewritings may change its message. YAML breaks such a message into
// lines, which the patterns do not match.
func inJSON(text string) string {
	if strings.HasPrefix(text, "{") || !rewritten.MatchString(text) {
		return text
	}
	converted, err := yaml.ToJSON([]byte(text))
	if err != nil {
		return text
	}
	return string(converted)
}

var rewritten = regexp.MustCompile(`is invalid|Invalid\s+value|typed\s+patch|yaml:|Apply\s+failed|precondition`)

// name replaces the varying values in a text, except for resourceVersions of lists (withoutListVersion).
func (m *memory) name(text string) normal {
	var found normal
	text = uid.ReplaceAllStringFunc(text, func(value string) string { return m.symbol("uid", value) })
	text = generated.ReplaceAllStringFunc(text, func(name string) string { return name[:len(name)-5] + "*****" })
	for _, pattern := range []*regexp.Regexp{version, told} {
		text = pattern.ReplaceAllStringFunc(text, func(match string) string {
			parts := pattern.FindStringSubmatch(match)
			if parts[2] == future {
				return match
			}
			return parts[1] + m.symbol("rv", parts[2])
		})
	}
	now := time.Now()
	text = second.ReplaceAllStringFunc(text, func(value string) string {
		at, err := time.Parse("2006-01-02T15:04:05Z", strings.Replace(strings.TrimSuffix(value, " +0000 UTC"), " ", "T", 1)+map[bool]string{true: "Z"}[!strings.HasSuffix(value, "Z")])
		// Times from the requests are years away from now. They are the same on both servers, so they stay.
		if err != nil || now.Sub(at).Abs() > time.Hour {
			return value
		}
		found.times = append(found.times, at)
		return "${time}"
	})
	for _, rewriting := range rewritings {
		text = rewriting.pattern.ReplaceAllStringFunc(text, rewriting.rewrite)
	}
	text = current.ReplaceAllString(text, "${1}$${newest}")
	text = next.ReplaceAllString(text, "${1}$${continue}")
	text = age.ReplaceAllString(text, `${1}"$${age}"${2}`)
	found.text = yamlAge.ReplaceAllString(text, "${1}$${age}")
	return found
}

// withoutListVersion replaces the resourceVersion of a list by a symbol. The newest resourceVersions of the servers are
// not comparable. So the symbol names only which one the list has: the requested one, that of its first page, an older
// one or the newest one.
func (m *memory) withoutListVersion(text, asked string) string {
	pattern := version
	switch {
	case strings.HasPrefix(text, "{") && strings.Contains(strings.SplitN(text, `"metadata"`, 2)[0], `List"`):
	case strings.HasPrefix(text, "{") && strings.Contains(strings.SplitN(text, `"metadata"`, 2)[0], `"Table"`) && isCollection(asked):
	case listKind.MatchString(text), tableKind.MatchString(text) && isCollection(asked):
		pattern = yamlList
	default:
		return text
	}
	at := pattern.FindStringSubmatchIndex(text)
	if at == nil {
		return text
	}
	value := text[at[4]:at[5]]
	name := "${newest}"
	if strings.Contains(asked, "="+value) {
		// Without resourceVersionMatch=Exact, the newest resourceVersion may equal the requested one by chance. Then
		// the symbol stays ${newest}.
		if strings.Contains(asked, "Exact") {
			name = "${asked}"
		}
	} else if m.above(value) > 0 {
		name = "${older}"
	}
	for token, page := range m.pages {
		if strings.Contains(asked, "continue="+token) && page == value {
			name = "${first page}"
		}
	}
	return text[:at[4]] + name + text[at[5]:]
}

func isCollection(target string) bool {
	path, _, _ := strings.Cut(target, "?")
	return strings.HasSuffix(strings.TrimSuffix(path, "/"), "/leases")
}

// readable returns the text of a body for the comparison, and the body for learn. It decodes protobuf to JSON. The text
// of a protobuf body also shows whether the body equals Go's encoding of the decoded object.
func readable(contentType string, body []byte) (text string, decoded []byte) {
	if !strings.HasPrefix(contentType, runtime.ContentTypeProtobuf) || len(body) == 0 {
		return string(body), body
	}
	decoded, note := fromProtobuf(body)
	return string(decoded) + note, decoded
}

type coded interface {
	Unmarshal([]byte) error
	Marshal() ([]byte, error)
}

// fromProtobuf decodes an object and its envelope (runtime.Unknown). It returns the object as JSON, and a note with the
// fields of the envelope and with errors.
func fromProtobuf(body []byte) ([]byte, string) {
	raw, found := bytes.CutPrefix(body, protobufPrefix)
	if !found {
		return body, "\nno prefix of protobuf"
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(raw); err != nil {
		return body, "\nno envelope of protobuf: " + err.Error()
	}
	note := fmt.Sprintf("\nenvelope %q %q", unknown.ContentType, unknown.ContentEncoding)
	if again, err := unknown.Marshal(); err != nil || !bytes.Equal(again, raw) {
		note += ", encoded otherwise"
	}
	object := objectOf(unknown.Kind)
	if object == nil {
		return body, note + ", unexpected kind " + unknown.Kind
	}
	if err := object.Unmarshal(unknown.Raw); err != nil {
		return body, note + ": " + err.Error()
	}
	if again, err := object.Marshal(); err != nil || !bytes.Equal(again, unknown.Raw) {
		note += ", content encoded otherwise"
	}
	text, err := json.Marshal(object)
	if err != nil {
		return body, note + ": " + err.Error()
	}
	kind, _ := json.Marshal(unknown.Kind)
	group, _ := json.Marshal(unknown.APIVersion)
	return fmt.Appendf(nil, `{"kind":%s,"apiVersion":%s,%s`, kind, group, text[1:]), note
}

func objectOf(kind string) coded {
	switch kind {
	case "Lease":
		return &coordinationv1.Lease{}
	case "LeaseList":
		return &coordinationv1.LeaseList{}
	case "PartialObjectMetadata":
		return &metav1.PartialObjectMetadata{}
	case "PartialObjectMetadataList":
		return &metav1.PartialObjectMetadataList{}
	case "Status":
		return &metav1.Status{}
	default:
		return nil
	}
}

// readEvents reads the events of a watch until its end. It calls found with each event, in JSON.
func readEvents(contentType string, stream io.ReadCloser, found func(string)) error {
	if !strings.HasPrefix(contentType, runtime.ContentTypeProtobuf) {
		decoder := json.NewDecoder(stream)
		for {
			var event json.RawMessage
			if err := decoder.Decode(&event); err != nil {
				return err
			}
			found(string(event))
		}
	}
	frames := framer.NewLengthDelimitedFrameReader(stream)
	buffer := make([]byte, 1<<20)
	for {
		length, err := frames.Read(buffer)
		if err != nil {
			return err
		}
		var event metav1.WatchEvent
		if err := event.Unmarshal(buffer[:length]); err != nil {
			return err
		}
		object, note := fromProtobuf(event.Object.Raw)
		if event.Type == "BOOKMARK" {
			note = strings.TrimSuffix(note, ", content encoded otherwise")
		}
		found(fmt.Sprintf(`{"type":"%s","object":%s}%s`, event.Type, object, note))
	}
}

// isBookmark returns whether an event is a periodic bookmark. The servers send these at different times.
func isBookmark(event string) bool {
	return strings.HasPrefix(event, `{"type":"BOOKMARK"`) && !strings.Contains(event, "initial-events-end")
}
