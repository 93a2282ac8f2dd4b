package suite

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

const (
	// Time for which a takeover copies changes of built-in storage after the last kube-apiserver has switched. A write
	// that ends later may be a late write, which the takeover loses (docs/known-problems.md, "Late writes that a
	// takeover loses").
	inFlightMax = 250 * time.Millisecond
	// Maximum duration of the reads that note makes after a 409. A kubelet renews 10.4 s after its last sync at the
	// latest. These reads prolong a sync, so the maximum must be less than the rest of the 12 s that settle waits.
	conflictReadMax = time.Second
	// Lower limit of the resourceVersions of our server. Those of built-in storage are smaller.
	builtInVersionsEnd = 1 << 49
)

// conflicts records the updates of kubelets and candidates that got 409.
type conflicts struct {
	mutex sync.Mutex
	seen  []conflict
	// Last successful update of each Lease, by the path of the Lease.
	last map[string]span
	// Time at which the last takeover printed that every kube-apiserver has switched.
	switched time.Time
}

// span is the time from an update to its answer.
type span struct{ begun, ended time.Time }

func (s span) took() time.Duration { return s.ended.Sub(s.begun).Round(time.Millisecond) }

// conflict is an update that got 409.
type conflict struct {
	// The update and the answer, and the states of the Lease right after the answer.
	report string
	// Whether the update names a resourceVersion of built-in storage.
	isBuiltIn bool
	// The update, and the last successful update of the Lease before it.
	updates [2]span
}

// isLate returns whether a late write may be the reason for a 409. This write is the update itself, or the successful
// one before it. It begins before every kube-apiserver has switched, and ends after the last copy of a takeover.
func (c *conflicts) isLate(found conflict) bool {
	return found.isBuiltIn && slices.ContainsFunc(found.updates[:], func(update span) bool {
		return update.begun.Before(c.switched) && update.ended.After(c.switched.Add(inFlightMax))
	})
}

// noteSwitch records that every kube-apiserver has switched to our server.
func (c *conflicts) noteSwitch() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.switched = time.Now()
}

// of returns a client configuration for which updates that get 409 are recorded.
func (c *conflicts) of(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			begun := time.Now()
			response, err := next.RoundTrip(request)
			if err == nil && request.Method == http.MethodPut {
				c.note(next, request, response, span{begun, time.Now()})
			}
			return response, err
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// note records an update that got 409, or the time of a successful update.
func (c *conflicts) note(next http.RoundTripper, request *http.Request, response *http.Response, update span) {
	path := request.URL.Path
	c.mutex.Lock()
	before := c.last[path]
	if response.StatusCode == http.StatusOK {
		if c.last == nil {
			c.last = map[string]span{}
		}
		c.last[path] = update
	}
	c.mutex.Unlock()
	if response.StatusCode != http.StatusConflict {
		return
	}
	at := time.Now().Format(time.TimeOnly)
	// The client waits for these reads, so they also delay its next renewal.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(request.Context()), conflictReadMax)
	defer cancel()
	// The client has yet to read the body.
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	answer := told(decoded(bytes.NewReader(body), err))
	sent := sentVersion(request)
	version, err := strconv.ParseUint(sent, 10, 64)
	found := conflict{
		report: fmt.Sprintf("%s: PUT %s with resourceVersion %q took %s and got 409 (%s); the last successful update took %s; "+
			"then kube-apiserver had %s; built-in storage had %s", at, path, sent, update.took(), answer, before.took(),
			readAgain(ctx, next, request), readBuiltIn(ctx, path)),
		isBuiltIn: err == nil && version < builtInVersionsEnd,
		updates:   [2]span{update, before},
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.seen = append(c.seen, found)
}

// sentVersion returns the resourceVersion in an update, or an empty string.
func sentVersion(request *http.Request) string {
	if request.GetBody == nil {
		return ""
	}
	body, err := request.GetBody()
	if err != nil {
		return ""
	}
	object, _ := decoded(body, nil)
	if lease, is := object.(*coordinationv1.Lease); is {
		return lease.ResourceVersion
	}
	return ""
}

// readAgain reads the Lease of an update through the same kube-apiserver, and describes the Lease.
func readAgain(ctx context.Context, next http.RoundTripper, update *http.Request) string {
	read := update.Clone(ctx)
	read.Method, read.Body, read.GetBody, read.ContentLength = http.MethodGet, nil, nil, 0
	response, err := next.RoundTrip(read)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	return told(decoded(response.Body, nil))
}

// readBuiltIn describes a Lease in built-in storage. Its resourceVersion is the revision of its last write in etcd. The
// test asks etcd itself, since a kube-apiserver that has switched does not return built-in Leases.
func readBuiltIn(ctx context.Context, path string) string {
	key := strings.NewReplacer("/apis/coordination.k8s.io/v1/namespaces/", "/registry/leases/", "/leases/", "/").Replace(path)
	query, err := json.Marshal(map[string][]byte{"key": []byte(key)})
	if err != nil {
		return err.Error()
	}
	url := "http://127.0.0.1:" + os.Getenv("E2E_PORT_BASE") + "/v3/kv/range"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(query))
	if err != nil {
		return err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	var found struct {
		Kvs []struct {
			Value       []byte `json:"value"`
			ModRevision string `json:"mod_revision"`
		} `json:"kvs"`
	}
	if err := json.NewDecoder(response.Body).Decode(&found); err != nil {
		return fmt.Sprintf("%s: %v", response.Status, err)
	}
	if len(found.Kvs) == 0 {
		return "no such Lease"
	}
	object, err := decoded(bytes.NewReader(found.Kvs[0].Value), nil)
	if lease, is := object.(*coordinationv1.Lease); is {
		lease.ResourceVersion = found.Kvs[0].ModRevision
	}
	return told(object, err)
}

// decoded returns the object in a body, or in a value of etcd. `err` is an earlier error, which decoded returns.
func decoded(body io.Reader, err error) (runtime.Object, error) {
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	return object, err
}

// told describes a Lease or a Status.
func told(object runtime.Object, err error) string {
	switch object := object.(type) {
	case *coordinationv1.Lease:
		return fmt.Sprintf("resourceVersion %s, holder %q, renewTime %v", object.ResourceVersion,
			ptr.Deref(object.Spec.HolderIdentity, ""), object.Spec.RenewTime)
	case *metav1.Status:
		return object.Message
	default:
		return fmt.Sprintf("no Lease: %v", err)
	}
}

// forget removes the recorded updates.
func (c *conflicts) forget() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.seen = nil
}

// outcome returns the reports of all updates that got 409. It returns an error if a late write cannot be the reason for
// one of them.
func (c *conflicts) outcome() (reports []string, err error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, found := range c.seen {
		reports = append(reports, found.report)
		if !c.isLate(found) && err == nil {
			err = fmt.Errorf("%d updates got 409, the first that is due to no late write: %s", len(c.seen), found.report)
		}
	}
	return reports, err
}

// hasMutatingPolicies returns whether kube-apiserver has MutatingAdmissionPolicies, which Kubernetes 1.36 added. A
// rollback creates such a policy, so that built-in storage accepts renewals with a resourceVersion of our server.
func hasMutatingPolicies() (bool, error) {
	found, err := admin().Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	if err != nil {
		return false, err
	}
	for _, resource := range found.APIResources {
		if resource.Name == "mutatingadmissionpolicies" {
			return true, nil
		}
	}
	return false, nil
}

// afterRollback checks updates with a resourceVersion from before the rollback. A renewal must succeed if
// kube-apiserver has MutatingAdmissionPolicies. Other updates must get 409.
func (s *scene) afterRollback(ctx context.Context, before map[string]coordinationv1.Lease) error {
	changed := before["fixed-2"]
	changed.Spec.HolderIdentity = ptr.To("three")
	if _, err := s.leases.Update(ctx, &changed, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		return fmt.Errorf("want 409 for an acquisition with a resourceVersion from before the rollback, got %v", err)
	}
	is, err := hasMutatingPolicies()
	if err != nil || !is {
		return err
	}
	_, err = s.renewFixed(ctx, before)
	return err
}

// noConflicts checks that no renewal since the last takeover got 409, except because of a late write. Without a
// MutatingAdmissionPolicy, a rollback causes some.
func (s *scene) noConflicts() error {
	is, err := hasMutatingPolicies()
	if err != nil {
		return err
	}
	count, err := s.logConflicts()
	if !is {
		s.t.Logf("kube-apiserver has no MutatingAdmissionPolicies; renewals with 409: %d", count)
		return nil
	}
	return err
}

// logConflicts logs all updates that got 409, and returns their number. It returns an error like conflicts.outcome.
func (s *scene) logConflicts() (int, error) {
	reports, err := s.conflicts.outcome()
	for _, report := range reports {
		s.t.Log(report)
	}
	return len(reports), err
}

// settle waits until each client has renewed at built-in storage after a rollback, and then forgets the updates that
// got 409. The reason: the next takeover deletes the MutatingAdmissionPolicy that accepts the first renewal after a
// rollback.
func (s *scene) settle() {
	time.Sleep(kubeletInterval + 2*time.Second)
	s.conflicts.forget()
}
