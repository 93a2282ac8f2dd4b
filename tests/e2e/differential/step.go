package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// step is one request of a sequence. Both servers get this request. Its target, header values and body may contain
// symbols, which stand for values that the server has sent:
//
//	${ns} ${other}      first and second namespace of the sequence
//	${rv:l1:0}          last resourceVersion of the Lease l1; the number 1 stands for the last but one, and so on
//	${uid:l1:0}         last UID of the Lease l1, counted in the same way
//	${list:0}           last resourceVersion of a list
//	${continue:0}       last continue token of a list at the same path
//	${name:0}           last generated name
//	${future}           a resourceVersion that does not exist yet
//
// If a server has not sent such a value yet, its symbol is replaced by 0, and ${continue:0} by an empty string.
type step struct {
	label  string // kind of the request, for the report
	method string
	target string
	header [][2]string
	body   body
	watch  bool          // whether a watch may start, whose events are compared at the end of the sequence
	settle bool          // whether a list comes first, so that kube-apiserver's watch cache has all writes
	sleep  time.Duration // pause before the request
}

// body describes the body of a step's request.
type body struct {
	text string // JSON, or any other text
	// from is the name of a Lease. The body is the last object of this Lease that the server has sent, with edits. If
	// there is no such object, the body is text.
	from  string
	edits []edit
	// encoding is the format into which the JSON is converted: "yaml", or for protobuf the kind of the object. The
	// empty string leaves the text unchanged.
	encoding string
}

// edit sets or deletes a field of an object.
type edit struct {
	path  []string
	value string // JSON; an empty value deletes the field
}

var symbols = regexp.MustCompile(`\$\{(ns|other|future|rv|uid|list|continue|name)(?::([^:}]*))?(?::(\d+))?\}`)

// message returns the request of a step for one server, with the values in the server's memory in place of symbols.
func (s *step) message(m *memory) message {
	// A continue token is valid only for the path of the list that returned it.
	path, _, _ := strings.Cut(s.target, "?")
	m.path = m.fill(path)
	filled := message{method: s.method, target: m.fill(s.target), body: s.body.bytes(m)}
	for _, field := range s.header {
		filled.header = append(filled.header, [2]string{field[0], m.fill(field[1])})
	}
	return filled
}

func (b *body) bytes(m *memory) []byte {
	text := []byte(m.fill(b.text))
	if object, known := m.objects[b.from]; known {
		var tree map[string]any
		if json.Unmarshal(object, &tree) == nil {
			for _, edit := range b.edits {
				edit.apply(tree, m)
			}
			text, _ = json.Marshal(tree)
		}
	}
	switch b.encoding {
	case "":
	case "yaml":
		var object unstructured.Unstructured
		var converted bytes.Buffer
		if utiljson.Unmarshal(text, &object.Object) == nil && object.Object != nil && toYAML.Encode(&object, &converted) == nil {
			return converted.Bytes()
		}
	default:
		if encoded, err := protobufOf(b.encoding, text); err == nil {
			return encoded
		}
	}
	return text
}

var toYAML = serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, nil, nil, serializer.SerializerOptions{Yaml: true})

func (e *edit) apply(tree map[string]any, m *memory) {
	for _, name := range e.path[:len(e.path)-1] {
		inner, is := tree[name].(map[string]any)
		if !is {
			inner = map[string]any{}
			tree[name] = inner
		}
		tree = inner
	}
	last := e.path[len(e.path)-1]
	if e.value == "" {
		delete(tree, last)
		return
	}
	var value any
	if err := json.Unmarshal([]byte(m.fill(e.value)), &value); err != nil {
		panic(fmt.Sprintf("%s is not JSON: %v", e.value, err))
	}
	tree[last] = value
}

// protobufOf converts an object from JSON to protobuf, as Kubernetes clients send it.
func protobufOf(kind string, text []byte) ([]byte, error) {
	var object interface {
		Marshal() ([]byte, error)
	}
	meta := metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: kind}
	switch kind {
	case "Lease":
		object = &coordinationv1.Lease{}
	case "DeleteOptions":
		object, meta.APIVersion = &metav1.DeleteOptions{}, "v1"
	}
	if err := json.Unmarshal(text, object); err != nil {
		return nil, err
	}
	var named metav1.TypeMeta
	if json.Unmarshal(text, &named) == nil && named.Kind+named.APIVersion != "" {
		meta = named
	}
	raw, err := object.Marshal()
	if err != nil {
		return nil, err
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: meta.APIVersion, Kind: meta.Kind}, Raw: raw}
	encoded, err := unknown.Marshal()
	return append(append([]byte{}, protobufPrefix...), encoded...), err
}

// protobufPrefix is the prefix of each object in protobuf.
var protobufPrefix = []byte("k8s\x00")

// memory is the values that one server has sent in a sequence. Both servers get the same steps, so values at the same
// position in both memories correspond to each other.
type memory struct {
	namespaces [2]string
	versions   map[string][]string // resourceVersions, by name of the Lease
	uids       map[string][]string // UIDs, by name of the Lease
	objects    map[string][]byte   // last object as JSON, by name of the Lease
	lists      []string            // resourceVersions of lists
	pages      map[string]string   // resourceVersion of a list, by its continue token
	tokens     map[string][]string // continue tokens, by path of the list
	path       string              // path of the current request
	names      []string            // generated names
	symbolOf   map[string]string   // symbols of UIDs and resourceVersions, by kind and value
	counts     map[string]int      // number of symbols, by kind
}

func newMemory(namespaces [2]string) *memory {
	return &memory{
		namespaces: namespaces, versions: map[string][]string{}, uids: map[string][]string{}, objects: map[string][]byte{},
		symbolOf: map[string]string{}, counts: map[string]int{}, pages: map[string]string{}, tokens: map[string][]string{},
	}
}

// clone returns a copy, which can assign symbols independently of m.
func (m *memory) clone() *memory {
	copied := *m
	copied.symbolOf, copied.counts = maps.Clone(m.symbolOf), maps.Clone(m.counts)
	return &copied
}

func (m *memory) fill(text string) string {
	if !strings.Contains(text, "${") {
		return text
	}
	return symbols.ReplaceAllStringFunc(text, func(symbol string) string {
		parts := symbols.FindStringSubmatch(symbol)
		kind, of := parts[1], parts[2]
		back, err := strconv.Atoi(parts[3])
		if err != nil {
			// A symbol without the name of a Lease, such as ${list:0}, has its number in the second part.
			back, _ = strconv.Atoi(of)
		}
		values := map[string][]string{
			"rv": m.versions[of], "uid": m.uids[of], "list": m.lists, "continue": m.tokens[m.path], "name": m.names,
			"ns": m.namespaces[:1], "other": m.namespaces[1:],
		}[kind]
		switch {
		case kind == "future":
			return future
		case back < len(values):
			return values[len(values)-1-back]
		case kind == "continue":
			return ""
		default:
			return "0"
		}
	})
}

// future is a resourceVersion above all those of both servers. Those of our server begin with the microseconds since
// 1970, and so reach this value in the year 2255.
const future = "9000000000000000"

// learn remembers the values of an answer to which later steps may refer.
func (m *memory) learn(decoded []byte) {
	var object struct {
		Kind     string
		Metadata struct {
			Name, Namespace, UID, GenerateName, ResourceVersion, Continue string
		}
		Items []json.RawMessage
	}
	if json.Unmarshal(decoded, &object) != nil {
		return
	}
	meta := object.Metadata
	switch object.Kind {
	case "Lease":
		name := meta.Name
		if meta.Namespace != m.namespaces[0] {
			name = "other/" + name
		}
		if meta.ResourceVersion != "" {
			remember(m.versions, name, meta.ResourceVersion)
		}
		remember(m.uids, name, meta.UID)
		m.objects[name] = decoded
		if meta.GenerateName != "" && strings.HasPrefix(meta.Name, meta.GenerateName) && !slices.Contains(m.names, meta.Name) {
			m.names = append(m.names, meta.Name)
		}
	case "LeaseList", "PartialObjectMetadataList", "Table":
		if object.Kind == "Table" && bytes.Count(decoded, []byte(`"cells"`)) == 1 && meta.Continue == "" {
			return // the Table may show a single Lease instead of a list
		}
		m.lists = append(m.lists, meta.ResourceVersion)
		if meta.Continue != "" {
			m.tokens[m.path], m.pages[meta.Continue] = append(m.tokens[m.path], meta.Continue), meta.ResourceVersion
		}
		for _, item := range object.Items {
			if object.Kind == "LeaseList" {
				m.learnItem(item)
			}
		}
	}
}

// learnItem remembers a Lease of a list. The items of a list have no kind, so learnItem adds it.
func (m *memory) learnItem(item json.RawMessage) {
	m.learn(append([]byte(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1",`), bytes.TrimPrefix(item, []byte("{"))...))
}

func remember(of map[string][]string, name, value string) {
	seen := of[name]
	if len(seen) == 0 || seen[len(seen)-1] != value {
		of[name] = append(seen, value)
	}
}

// symbol returns the symbol for a value that differs between the servers. A value always gets the same symbol. The
// symbol of a new resourceVersion also shows how many known resourceVersions are greater.
func (m *memory) symbol(kind, value string) string {
	known, is := m.symbolOf[kind+value]
	if !is {
		m.counts[kind]++
		known = fmt.Sprintf("${%s %d}", kind, m.counts[kind])
		if above := m.above(value); kind == "rv" && above > 0 {
			known = fmt.Sprintf("${%s %d, below %d others}", kind, m.counts[kind], above)
		}
		m.symbolOf[kind+value] = known
	}
	return known
}

// above returns the number of known resourceVersions that are greater than this one.
func (m *memory) above(value string) (count int) {
	for known := range m.symbolOf {
		if version, is := strings.CutPrefix(known, "rv"); is && less(value, version) {
			count++
		}
	}
	return count
}

// less returns whether a decimal number of any length is less than another one.
func less(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }
