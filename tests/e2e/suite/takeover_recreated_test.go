package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	apiServiceName = "v1.coordination.k8s.io"
	// Time within which our servers copy a change to built-in storage while they serve.
	copiedWithin = 2 * time.Second
)

// TestTakeoverRecreated deletes the APIService of Leases while our servers serve, and creates it again, as a GitOps
// tool may do. In between, a client acquires a lock in built-in storage. Our servers must then refuse writes until the
// next takeover. The takeover must keep the new holder, and so must a rollback.
//
// TestTakeover describes the variables.
func TestTakeoverRecreated(t *testing.T) {
	if os.Getenv("E2E_TAKEOVER") == "" {
		t.Skip("tests/e2e/run runs this test after the suite")
	}
	space := namespace(t)
	cluster := kubectl{space}
	check(t, 4*time.Minute, func(ctx context.Context) error {
		if err := command(ctx, os.Getenv("E2E_TAKEOVER")); err != nil {
			return err
		}
		if _, err := admin().CoordinationV1().Leases(space).Create(ctx, lease("lock", "one"), metav1.CreateOptions{}); err != nil {
			return err
		}
		time.Sleep(copiedWithin)
		manifest, err := apiServiceManifest(ctx, cluster)
		if err != nil {
			return err
		}
		if _, err := cluster.run(ctx, "", "delete", "apiservice", apiServiceName); err != nil {
			return err
		}
		if err := eventually(ctx, servedMax, func(ctx context.Context) error { return acquireBuiltIn(ctx, space) }); err != nil {
			return err
		}
		if _, err := cluster.run(ctx, manifest, "create", "-f", "-"); err != nil {
			return err
		}
		if err := eventually(ctx, servedMax, func(ctx context.Context) error { return isStep(ctx, "not-ours") }); err != nil {
			return err
		}
		if err := isRefused(ctx, space); err != nil {
			return err
		}
		for _, variable := range []string{"E2E_TAKEOVER", "E2E_ROLLBACK"} {
			if err := command(ctx, os.Getenv(variable)); err != nil {
				return err
			}
			lock, err := admin().CoordinationV1().Leases(space).Get(ctx, "lock", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if holder := ptr.Deref(lock.Spec.HolderIdentity, ""); holder != "two" {
				return fmt.Errorf("after %s, the lock has the holder %q", variable, holder)
			}
		}
		return nil
	})
}

// apiServiceManifest returns the present APIService as a manifest, with which it can be created again.
func apiServiceManifest(ctx context.Context, cluster kubectl) (string, error) {
	text, err := cluster.run(ctx, "", "get", "apiservice", apiServiceName, "-o", "json")
	if err != nil {
		return "", err
	}
	var manifest struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Metadata   struct {
			Name   string            `json:"name"`
			Labels map[string]string `json:"labels,omitempty"`
		} `json:"metadata"`
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal([]byte(text), &manifest); err != nil {
		return "", err
	}
	kept, err := json.Marshal(manifest)
	return string(kept), err
}

// acquireBuiltIn gives the built-in lock to the holder "two". It fails while our servers serve the lock.
func acquireBuiltIn(ctx context.Context, space string) error {
	if _, err := theLease(ctx, handoverLease); err == nil {
		return errors.New("our servers still serve Leases")
	}
	leases := admin().CoordinationV1().Leases(space)
	lock, err := leases.Get(ctx, "lock", metav1.GetOptions{})
	if err != nil {
		return err
	}
	lock.Spec.HolderIdentity = ptr.To("two")
	_, err = leases.Update(ctx, lock, metav1.UpdateOptions{})
	return err
}

// isStep checks that our servers serve Leases through kube-apiserver. The Lease in which they store the state of the
// switch must have this step.
func isStep(ctx context.Context, wanted string) error {
	handover, err := theLease(ctx, handoverLease)
	if err != nil {
		return err
	}
	if step := handover.Annotations["coordination-apiserver/step"]; step != wanted {
		return fmt.Errorf("the hand-over has the step %q", step)
	}
	return nil
}

// isRefused checks that our servers refuse a creation with 429. client-go would repeat the request, so retries are off.
func isRefused(ctx context.Context, space string) error {
	err := admin().CoordinationV1().RESTClient().Post().Namespace(space).Resource("leases").
		Body(lease("refused", "one")).MaxRetries(0).Do(ctx).Error()
	if !apierrors.IsTooManyRequests(err) {
		return fmt.Errorf("a server that has lost the APIService answered a creation with %v", err)
	}
	return nil
}
