package main

import (
	"fmt"
	"io"
	"regexp"
	"sort"
	"strings"
	"sync"
	"time"
)

// report is the result of all sequences.
type report struct {
	mutex     sync.Mutex
	examples  int // maximum number of differences in shown
	took      time.Duration
	sequences int
	requests  int
	slowest   time.Duration
	reasons   map[string]int // number of known differences, by reason
	seen      map[string]int // number of other differences, by signature
	shown     []string
	flakes    []string
	flaky     map[int64]bool // seeds of the sequences with flakes
	openAPI   []string       // unknown differences of the OpenAPI documents
}

func newReport(examples int) *report {
	return &report{examples: examples, reasons: map[string]int{}, seen: map[string]int{}, flaky: map[int64]bool{}}
}

func (r *report) ran(requests int, took time.Duration) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.sequences++
	r.requests += requests
	r.slowest = max(r.slowest, took)
}

func (r *report) known(reason string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.reasons[reason]++
}

func (r *report) flaked(sequence sequence, d *difference) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.flaky[sequence.seed] = true
	r.flakes = append(r.flakes, fmt.Sprintf("--- differed only once: %s\n-n 1 -seed %d -steps %d\n    %s\n    sent as %s\n%s",
		d.signature(), sequence.seed, min(d.at+1, len(sequence.steps)), d.step.template(), describe(d.asked), indent(d.compared())))
}

func (r *report) differsInOpenAPI(place string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.openAPI = append(r.openAPI, place)
}

// isNew counts a difference. It returns whether the difference is the first one with its signature, and is to be shown
// in full.
func (r *report) isNew(d *difference) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.seen[d.signature()]++
	return r.seen[d.signature()] == 1 && len(r.seen) <= r.examples
}

func (r *report) add(sequence sequence, at int, d *difference) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.shown = append(r.shown, fmt.Sprintf("=== %s\n-n 1 -seed %d -steps %d; the shortest sequence found:\n%s",
		d.signature(), sequence.seed, min(at+1, len(sequence.steps)), d.story()))
}

// perFlake is the number of sequences for each allowed flake. A flake is a difference that does not occur again when
// the sequence is repeated. Two causes explain a few flakes: a second that ends between two answers, and a watch cache
// that lags. More flakes may be a race in our server.
const perFlake = 200

// isFlaky returns whether too many sequences had flakes. One sequence is never too many.
func (r *report) isFlaky() bool { return len(r.flaky) > max(1, r.sequences/perFlake) }

// failed returns whether the run has failed. The method print shows the reasons.
func (r *report) failed() bool { return len(r.seen) > 0 || len(r.openAPI) > 0 || r.isFlaky() }

func (r *report) print(to io.Writer) {
	for _, text := range r.shown {
		fmt.Fprintln(to, text)
	}
	for _, place := range r.openAPI {
		fmt.Fprintln(to, "=== OpenAPI:", place)
	}
	for _, text := range r.flakes {
		fmt.Fprintln(to, text)
	}
	if r.isFlaky() {
		fmt.Fprintf(to, "too many sequences differed only once: %d; at most one in %d may\n", len(r.flaky), perFlake)
	}
	if len(r.seen) > 0 {
		fmt.Fprintf(to, "%d kinds of differences:\n", len(r.seen))
		for _, signature := range sorted(r.seen) {
			fmt.Fprintf(to, "%5d  %s\n", r.seen[signature], signature)
		}
	}
	for _, reason := range sorted(r.reasons) {
		fmt.Fprintf(to, "%5d  known: %s\n", r.reasons[reason], reason)
	}
	different := 0
	for _, count := range r.seen {
		different += count
	}
	fmt.Fprintf(to, "%d sequences, %d requests: %d differed, %d only once, %d as known; %.0f s, the slowest sequence %.1f s\n",
		r.sequences, r.requests, different, len(r.flaky), total(r.reasons), r.took.Seconds(), r.slowest.Seconds())
}

func total(of map[string]int) (sum int) {
	for _, count := range of {
		sum += count
	}
	return sum
}

func sorted(of map[string]int) []string {
	keys := make([]string, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}
	sort.Slice(keys, func(a, b int) bool {
		if of[keys[a]] != of[keys[b]] {
			return of[keys[a]] > of[keys[b]]
		}
		return keys[a] < keys[b]
	})
	return keys
}

var digits = regexp.MustCompile(`\d+`)

// signature identifies the kind of a difference by the label of its step and the first line that differs. N replaces
// the numbers in that line, unless it is the status.
func (d *difference) signature() string {
	a, b := lines(d.said[0]), lines(d.said[1])
	for at := 0; at < max(len(a), len(b)); at++ {
		x, y := line(a, at), line(b, at)
		if x == y {
			continue
		}
		x, y = around(x, y)
		if at > 0 {
			x, y = digits.ReplaceAllString(x, "N"), digits.ReplaceAllString(y, "N")
		}
		return fmt.Sprintf("%s: %s <> %s", d.step.label, x, y)
	}
	return d.step.label + ": times"
}

// around returns parts of two texts. They begin 16 bytes before the first difference, and have at most 60 characters.
func around(a, b string) (string, string) {
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	cut := func(text string) string {
		return fmt.Sprintf("%.60q", text[max(0, same-16):])
	}
	return cut(a), cut(b)
}

func lines(text string) []string { return strings.Split(text, "\n") }

func line(of []string, at int) string {
	if at < len(of) {
		return of[at]
	}
	return ""
}

// story describes the steps that lead to a difference.
func (d *difference) story() string {
	var text strings.Builder
	for at, step := range d.before {
		fmt.Fprintf(&text, "%3d %s\n", at, step.template())
	}
	if d.at >= len(d.before) {
		fmt.Fprintf(&text, "    events of the watch %s\n", describe(d.asked))
	} else {
		fmt.Fprintf(&text, "    sent as %s\n", describe(d.asked))
	}
	text.WriteString(indent(d.compared()))
	return text.String()
}

// compared returns the lines of both answers. Lines that differ are complete, and equal lines have at most 200
// characters.
func (d *difference) compared() string {
	a, b := lines(d.said[0]), lines(d.said[1])
	var text strings.Builder
	for at := 0; at < max(len(a), len(b)); at++ {
		if x, y := line(a, at), line(b, at); x == y {
			fmt.Fprintf(&text, "  %.200s\n", x)
		} else {
			fmt.Fprintf(&text, "< %s\n> %s\n", x, y)
		}
	}
	return text.String()
}

// template formats a step with its symbols.
func (s *step) template() string {
	text := s.method + " " + s.target
	for _, field := range s.header {
		text += fmt.Sprintf(" [%s: %s]", field[0], field[1])
	}
	if s.body.from != "" {
		text += fmt.Sprintf(" object of %s with %v", s.body.from, s.body.edits)
	} else if s.body.text != "" {
		text += fmt.Sprintf(" %q", s.body.text)
	}
	if s.body.encoding != "" {
		text += " in " + s.body.encoding
	}
	return text
}

// describe formats a request as it was sent to both servers.
func describe(asked [2]message) string {
	show := func(m message) string { return fmt.Sprintf("%s %s %q %q", m.method, m.target, m.header, m.body) }
	if a, b := show(asked[0]), show(asked[1]); a != b {
		return a + "\n     or " + b
	} else {
		return a
	}
}

func indent(text string) string { return "      " + strings.ReplaceAll(text, "\n", "\n      ") }
