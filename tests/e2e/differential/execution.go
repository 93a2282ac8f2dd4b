package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sequence is the steps that a seed determines.
type sequence struct {
	seed    int64
	version int // of HTTP: 0 is HTTP/2, 1 is HTTP/1.1
	steps   []step
}

// execution runs sequences in the two namespaces of one worker.
type execution struct {
	both    pair
	known   []knownDifference
	place   int // number of the worker
	verbose bool
}

func namespacesOf(place int) [2]string {
	return [2]string{fmt.Sprintf("differential-%02d", place), fmt.Sprintf("differential-%02d-other", place)}
}

// difference is a step whose answers differ between the servers, or a watch whose events differ.
type difference struct {
	at     int // index of the step; for events of a watch, the number of steps
	step   step
	asked  [2]message
	said   [2]string
	before []step // the shortest sequence found that shows the difference
}

// check runs a sequence, and reports its differences. If it finds an unknown difference, it repeats the sequence twice.
// A difference that does not occur again is reported as a flake (perFlake).
func (x *execution) check(ctx context.Context, sequence sequence, found *report) error {
	began := time.Now()
	first, requests, err := x.run(ctx, sequence)
	if err != nil {
		return err
	}
	found.ran(requests, time.Since(began))
	var unknown []*difference
	for _, difference := range first {
		if reason, is := knownReason(x.known, difference); is {
			found.known(reason)
		} else {
			unknown = append(unknown, difference)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	again := map[string]bool{}
	for range 2 {
		second, _, err := x.run(ctx, sequence)
		if err != nil {
			return err
		}
		for _, difference := range second {
			again[difference.signature()] = true
		}
	}
	for _, difference := range unknown {
		switch {
		case !again[difference.signature()]:
			found.flaked(sequence, difference)
		case found.isNew(difference):
			shortest, err := x.shrink(ctx, sequence, difference)
			if err != nil {
				return err
			}
			found.add(sequence, difference.at, shortest)
		}
	}
	return nil
}

// shrink removes steps from a sequence as long as it still shows the same difference.
func (x *execution) shrink(ctx context.Context, whole sequence, found *difference) (*difference, error) {
	steps := append([]step{}, whole.steps[:min(found.at+1, len(whole.steps))]...)
	for size := max(len(steps)/2, 1); size >= 1; size /= 2 {
		for from := 0; from+size <= len(steps) && len(steps) > size; {
			without := append(append([]step{}, steps[:from]...), steps[from+size:]...)
			differences, _, err := x.run(ctx, sequence{seed: whole.seed, version: whole.version, steps: without})
			if err != nil {
				return nil, err
			}
			left := false
			for _, difference := range differences {
				if !left && difference.signature() == found.signature() {
					left = true
					steps, found = without[:min(difference.at+1, len(without))], difference
				}
			}
			if !left {
				from += size
			}
		}
	}
	found.before = steps
	return found, nil
}

// run runs a sequence. It returns the differences and the number of requests. It ends at a difference after which the
// Leases of both servers may differ.
func (x *execution) run(ctx context.Context, sequence sequence) ([]*difference, int, error) {
	var found []*difference
	namespaces := namespacesOf(x.place)
	if err := x.clear(ctx, namespaces[:]); err != nil {
		return nil, 0, err
	}
	memories := [2]*memory{newMemory(namespaces), newMemory(namespaces)}
	var open []*watching
	defer func() {
		for _, watch := range open {
			watch.close()
		}
	}()
	for at, step := range sequence.steps {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		time.Sleep(step.sleep)
		if step.method != http.MethodPost && isCollection(step.target) {
			if err := x.beat(ctx); err != nil {
				return nil, 0, err
			}
		}
		if step.settle {
			if _, err := x.list(ctx, x.both[0], namespaces[0]); err != nil {
				return nil, 0, err
			}
		}
		awayFromSecond()
		asked := [2]message{step.message(memories[0]), step.message(memories[1])}
		answers, err := x.ask(ctx, sequence.version, asked, step.watch)
		if err != nil {
			return nil, 0, err
		}
		if answers[0].stream != nil && answers[1].stream != nil {
			open = append(open, watch(at, asked, answers))
		} else {
			// If only one server has started a watch, the statuses or headers already differ. So the stream is closed
			// unread.
			for _, answer := range answers {
				if answer.stream != nil {
					answer.stream.Close()
				}
			}
		}
		learns := answers[0].status < 300 && answers[1].status < 300
		normals := [2]normal{memories[0].normalOf(answers[0], asked[0], learns), memories[1].normalOf(answers[1], asked[1], learns)}
		if x.verbose {
			fmt.Printf("%3d %s\n%s\n", at, describe(asked), indent(normals[1].text))
		}
		if !normals[0].equals(normals[1]) {
			found = append(found, &difference{at: at, step: step, asked: asked, said: said(normals)})
			if step.changes(answers) {
				return found, at + 1, nil
			}
		}
	}
	for _, watch := range open {
		events := watch.wait()
		var normals [2]normal
		for at := range normals {
			// The events of one server may have values that the other server does not show. The symbols of these values
			// must not affect those of the next watch.
			memory := memories[at].clone()
			text := strings.Join(events[at], "\n")
			if !strings.HasPrefix(text, `{"type"`) {
				// The query asked for no watch, so the answer is a list.
				text = memory.withoutListVersion(text, watch.asked[at].target)
			}
			normals[at] = memory.name(text)
		}
		if x.verbose {
			fmt.Printf("events of the watch in step %d\n%s\n", watch.at, indent(normals[1].text))
		}
		if !normals[0].equals(normals[1]) {
			step := sequence.steps[watch.at]
			step.label += " events"
			found = append(found, &difference{at: len(sequence.steps), step: step, asked: watch.asked, said: said(normals)})
		}
	}
	return found, len(sequence.steps), nil
}

// beat renews a Lease in another namespace on both servers. So the next list has a resourceVersion above those of its
// items. Without beat, that would depend on the writes of other sequences. Chance would then decide whether a deletion
// of a collection at the resourceVersion of the list meets its precondition.
func (x *execution) beat(ctx context.Context) error {
	object := fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"beat-%02d"},"spec":{"renewTime":%q}}`,
		x.place, time.Now().UTC().Format(metav1.RFC3339Micro))
	renewal := message{
		method: http.MethodPatch, target: fmt.Sprintf("%s/beat-%02d?fieldManager=beat", leasesOf(beats), x.place), body: []byte(object),
		header: [][2]string{{"Content-Type", "application/apply-patch+yaml"}},
	}
	answers, err := x.ask(ctx, 0, [2]message{renewal, renewal}, false)
	if err != nil {
		return err
	}
	for at, answer := range answers {
		if answer.status >= 300 {
			return fmt.Errorf("%s: %s: %d %s", x.both[at].name, renewal.target, answer.status, answer.body)
		}
	}
	return nil
}

// awayFromSecond waits for the next second if it begins in less than 60 ms. So both servers write in the same second.
// The times in managedFields have a resolution of a second, and decide the order of the entries.
func awayFromSecond() {
	const soon = 60 * time.Millisecond
	if left := time.Until(time.Now().Truncate(time.Second).Add(time.Second)); left < soon {
		time.Sleep(left + time.Millisecond)
	}
}

// changes returns whether the Leases of both servers may differ after a step with these answers.
func (s *step) changes(answers [2]answer) bool {
	refused := answers[0].status >= 400 && answers[1].status >= 400
	return s.method != http.MethodGet && s.method != http.MethodHead && !refused
}

// ask sends a request to both servers at the same time.
func (x *execution) ask(ctx context.Context, version int, asked [2]message, watch bool) ([2]answer, error) {
	var answers [2]answer
	var problems [2]error
	var waiting sync.WaitGroup
	for at := range answers {
		waiting.Go(func() { answers[at], problems[at] = x.both[at].ask(ctx, version, asked[at], watch) })
	}
	waiting.Wait()
	return answers, errors.Join(problems[:]...)
}

func (a normal) equals(b normal) bool {
	if a.text != b.text || len(a.times) != len(b.times) {
		return false
	}
	for at := range a.times {
		if a.times[at].Sub(b.times[at]).Abs() > time.Second {
			return false
		}
	}
	return true
}

func said(normals [2]normal) [2]string {
	texts := [2]string{normals[0].text, normals[1].text}
	if texts[0] == texts[1] {
		for at := range texts {
			texts[at] += fmt.Sprintf("\ntimes: %v", normals[at].times)
		}
	}
	return texts
}

// clear deletes all Leases in these namespaces on both servers, also Leases with finalizers.
func (x *execution) clear(ctx context.Context, namespaces []string) error {
	for _, server := range x.both {
		for _, namespace := range namespaces {
			for {
				left, err := x.list(ctx, server, namespace)
				if err != nil {
					return err
				}
				if len(left) == 0 {
					break
				}
				for name, held := range left {
					target := leasesOf(namespace) + "/" + name
					if held {
						message := message{
							method: http.MethodPatch, target: target, body: []byte(`{"metadata":{"finalizers":null}}`),
							header: [][2]string{{"Content-Type", "application/merge-patch+json"}},
						}
						if _, err := server.ask(ctx, 0, message, false); err != nil {
							return err
						}
					}
					if _, err := server.ask(ctx, 0, message{method: http.MethodDelete, target: target}, false); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// list returns the names of the Leases in a namespace. The value of a name is true if the Lease has finalizers.
func (x *execution) list(ctx context.Context, server *server, namespace string) (map[string]bool, error) {
	answer, err := server.ask(ctx, 0, message{method: http.MethodGet, target: leasesOf(namespace)}, false)
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name       string
				Finalizers []string
			}
		}
	}
	if err := json.Unmarshal(answer.body, &list); err != nil || answer.status != http.StatusOK {
		return nil, fmt.Errorf("%s: list of %s: %d %s", server.name, namespace, answer.status, answer.body)
	}
	held := map[string]bool{}
	for _, item := range list.Items {
		held[item.Metadata.Name] = len(item.Metadata.Finalizers) > 0
	}
	return held, nil
}

func leasesOf(namespace string) string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
}

// goingAway is a namespace that is being deleted, and that a finalizer keeps in this state.
const goingAway = "differential-going-away"

// beats is the namespace of the Leases that beat renews.
const beats = "differential-beats"

// allNamespaces returns the namespaces of all workers, goingAway and beats.
func allNamespaces(parallel int) []string {
	names := []string{goingAway, beats}
	for place := range parallel {
		pair := namespacesOf(place)
		names = append(names, pair[:]...)
	}
	return names
}

// makeNamespaces creates all namespaces. It waits until both servers have received their states.
func makeNamespaces(ctx context.Context, both pair, parallel int) error {
	names := allNamespaces(parallel)
	for _, name := range names {
		object := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"finalizers":["differential.example.com/hold"]}}`, name)
		if name != goingAway {
			object = fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name)
		}
		answer, err := both[0].ask(ctx, 0, message{
			method: http.MethodPost, target: "/api/v1/namespaces", body: []byte(object),
			header: [][2]string{{"Content-Type", "application/json"}},
		}, false)
		if err != nil {
			return err
		}
		if answer.status != http.StatusCreated && answer.status != http.StatusConflict {
			return fmt.Errorf("namespace %s: %d %s", name, answer.status, answer.body)
		}
	}
	if _, err := both[0].ask(ctx, 0, message{method: http.MethodDelete, target: "/api/v1/namespaces/" + goingAway}, false); err != nil {
		return err
	}
	for _, name := range names {
		if err := knows(ctx, both, name); err != nil {
			return err
		}
	}
	return nil
}

// cleanUp deletes all Leases of a run on both servers, and the namespaces. Some of these Leases contain control
// characters. If they stayed, `kubectl get` would fail. kube-controller-manager does not run, so cleanUp finalizes the
// namespaces.
func cleanUp(ctx context.Context, both pair, parallel int) error {
	names := allNamespaces(parallel)
	if err := (&execution{both: both}).clear(ctx, names); err != nil {
		return err
	}
	for _, name := range names {
		target := "/api/v1/namespaces/" + name
		for _, request := range []message{
			{
				method: http.MethodPatch, target: target, body: []byte(`{"metadata":{"finalizers":null}}`),
				header: [][2]string{{"Content-Type", "application/merge-patch+json"}},
			},
			{method: http.MethodDelete, target: target},
			{
				method: http.MethodPut, target: target + "/finalize", header: [][2]string{{"Content-Type", "application/json"}},
				body: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name),
			},
		} {
			answer, err := both[0].ask(ctx, 0, request, false)
			if err != nil {
				return err
			}
			if answer.status >= 300 && answer.status != http.StatusNotFound {
				return fmt.Errorf("%s %s: %d %s", request.method, request.target, answer.status, answer.body)
			}
		}
	}
	return nil
}

// knows waits until both servers allow clients to create Leases in a namespace. For goingAway, it waits until both
// servers refuse that.
func knows(ctx context.Context, both pair, name string) error {
	for _, server := range both {
		for until := time.Now().Add(20 * time.Second); ; {
			answer, err := server.ask(ctx, 0, message{
				method: http.MethodPost, target: leasesOf(name) + "?dryRun=All", header: [][2]string{{"Content-Type", "application/json"}},
				body: []byte(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"probe"}}`),
			}, false)
			if err != nil {
				return err
			}
			if answer.status == http.StatusCreated && name != goingAway ||
				name == goingAway && bytes.Contains(answer.body, []byte("being terminated")) {
				break
			}
			if time.Now().After(until) {
				return fmt.Errorf("%s has not received the state of namespace %s: %d %s", server.name, name, answer.status, answer.body)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}
