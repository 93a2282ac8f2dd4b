package suite

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// conflicts records the updates of kubelets and candidates that got 409.
type conflicts struct {
	mutex sync.Mutex
	seen  []string
}

// of returns a client configuration for which updates that get 409 are recorded.
func (c *conflicts) of(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil && request.Method == http.MethodPut && response.StatusCode == http.StatusConflict {
				c.mutex.Lock()
				defer c.mutex.Unlock()
				c.seen = append(c.seen, fmt.Sprintf("%s: %s %s", time.Now().Format(time.TimeOnly), request.Method, request.URL.Path))
			}
			return response, err
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// forget removes the recorded updates.
func (c *conflicts) forget() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.seen = nil
}

// outcome returns an error if an update got 409.
func (c *conflicts) outcome() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if len(c.seen) == 0 {
		return nil
	}
	return fmt.Errorf("%d renewals got 409, the first: %s", len(c.seen), c.seen[0])
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

// noConflicts checks that no renewal since the last takeover got 409. Without a MutatingAdmissionPolicy, a rollback
// causes some.
func (s *scene) noConflicts() error {
	is, err := hasMutatingPolicies()
	if err != nil {
		return err
	}
	seen := s.conflicts.outcome()
	if !is {
		s.t.Logf("kube-apiserver has no MutatingAdmissionPolicies; renewals with 409: %v", seen)
		return nil
	}
	return seen
}
