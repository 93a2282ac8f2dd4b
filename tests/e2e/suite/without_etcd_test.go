package suite

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	// Maximum delay of a renewal. If an admission policy denies a renewal, the kubelet waits until its next renewal is
	// due.
	deniedLateMax = kubeletInterval + switchMax
	// Prefix of the names of the admission policies that the commands create.
	policyPrefix = "coordination-apiserver-"
)

// TestTakeoverWithoutEtcd takes over a cluster without access to its etcd and rolls it back, while kubelets, candidates
// and other clients work. Each command is first killed at some of its lines. No node may become NotReady, no leader may
// lose its lock, and no lock may have two holders. Leases from before the takeover must keep their UIDs. At the end, no
// admission policy may be left.
//
//	E2E_CONTROLLERS       command that restarts kube-controller-manager after each switch
//	E2E_SHIELD            1 if the takeover has --shield: kube-controller-manager is restarted after the rollback only
//	E2E_TAKEOVER_SECONDS  seconds from the takeover to the rollback (90)
//
// TestTakeover describes the other variables.
func TestTakeoverWithoutEtcd(t *testing.T) {
	if os.Getenv("E2E_TAKEOVER") == "" {
		t.Skip("tests/e2e/run runs this test after the suite")
	}
	between := time.Duration(number("E2E_TAKEOVER_SECONDS", 90)) * time.Second
	after := time.Duration(number("E2E_ROLLBACK_SECONDS", 0)) * time.Second
	isShielded := os.Getenv("E2E_SHIELD") == "1"
	space := namespace(t)
	check(t, between+after+10*time.Minute, func(ctx context.Context) error {
		scene, err := newScene(ctx, t, space, deniedLateMax)
		if err != nil {
			return err
		}
		defer scene.end()
		if err := scene.beginChanged(ctx); err != nil {
			return err
		}
		before, err := scene.fixed(ctx)
		if err != nil {
			return err
		}
		if err := scene.kill(ctx, "E2E_TAKEOVER"); err != nil {
			return err
		}
		if err := scene.takeOver(ctx); err != nil {
			return err
		}
		takenOver := time.Now()
		if err := scene.afterTakeoverWithoutEtcd(ctx, before, isShielded); err != nil {
			return err
		}
		if !isShielded {
			if err := command(ctx, os.Getenv("E2E_CONTROLLERS")); err != nil {
				return err
			}
			if err := scene.noticed(ctx, 0, notReadyMax); err != nil {
				return err
			}
		}
		time.Sleep(time.Until(takenOver.Add(between)))
		if err := scene.complaint(); err != nil {
			return fmt.Errorf("before the rollback: %w", err)
		}
		if err := scene.rollBackWithoutEtcd(ctx); err != nil {
			return err
		}
		rolledBack := time.Now()
		if err := command(ctx, os.Getenv("E2E_CONTROLLERS")); err != nil {
			return err
		}
		if err := eventually(ctx, 60*time.Second, scene.informersAgree); err != nil {
			return err
		}
		if err := scene.noticed(ctx, 1, notReadyMax); err != nil {
			return err
		}
		time.Sleep(time.Until(rolledBack.Add(after)))
		return scene.outcome()
	})
}

// beginChanged creates the Leases of the set "changed", which the test deletes after the takeover.
func (s *scene) beginChanged(ctx context.Context) error {
	for number := range 2 {
		if _, err := s.leases.Create(ctx, s.fixture("changed", number), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// afterTakeoverWithoutEtcd checks that the takeover has changed no Lease of the set "fixed". Then it changes Leases.
// Informers that were started after the takeover must have the changes.
func (s *scene) afterTakeoverWithoutEtcd(ctx context.Context, before map[string]coordinationv1.Lease, isShielded bool) error {
	if err := s.compare(ctx, before); err != nil {
		return err
	}
	var policies []string
	if isShielded {
		policies = append(policies, policyPrefix+"shield")
	}
	if err := checkPolicies(ctx, policies); err != nil {
		return err
	}
	if _, err := s.renewFixed(ctx, before); err != nil {
		return err
	}
	if err := s.acquireFixed(ctx); err != nil {
		return err
	}
	for number := range 2 {
		if err := s.leases.Delete(ctx, fmt.Sprint("changed-", number), metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	// The first of these Leases has the name of a built-in Lease, but another UID.
	for number := 1; number <= 2; number++ {
		created := s.fixture("changed", number)
		created.Spec.HolderIdentity = ptr.To("two")
		if _, err := s.leases.Create(ctx, created, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return eventually(ctx, newWatchMax, func(ctx context.Context) error { return s.agree(ctx, s.informers[1:]) })
}

// rollBackWithoutEtcd rolls the cluster back, and checks that built-in storage has the Leases and that no policy is
// left.
func (s *scene) rollBackWithoutEtcd(ctx context.Context) error {
	fixed, err := s.fixed(ctx)
	if err != nil {
		return err
	}
	changed, err := s.set(ctx, "changed")
	if err != nil {
		return err
	}
	if err := s.rollBack(ctx); err != nil {
		return err
	}
	// The rollback has written the changed fields, and is their manager in managedFields.
	if err := s.compareSet(ctx, "fixed", fixed, func(held *coordinationv1.Lease) {
		if held.Name == "fixed-0" || held.Name == "fixed-1" {
			held.ManagedFields = nil
		}
	}); err != nil {
		return err
	}
	if err := s.compareSet(ctx, "changed", changed, func(held *coordinationv1.Lease) {
		held.UID, held.CreationTimestamp, held.ManagedFields = "", metav1.Time{}, nil
	}); err != nil {
		return err
	}
	return checkPolicies(ctx, nil)
}

// checkPolicies checks that exactly the wanted admission policies of the commands exist, each with its binding.
func checkPolicies(ctx context.Context, wanted []string) error {
	registration := admin().AdmissionregistrationV1()
	policies, err := registration.ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	bindings, err := registration.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var found, bound []string
	for _, policy := range policies.Items {
		found = append(found, policy.Name)
	}
	for _, binding := range bindings.Items {
		bound = append(bound, binding.Name)
	}
	isForeign := func(name string) bool { return !strings.HasPrefix(name, policyPrefix) }
	found, bound = slices.DeleteFunc(found, isForeign), slices.DeleteFunc(bound, isForeign)
	if !slices.Equal(found, wanted) || !slices.Equal(bound, wanted) {
		return fmt.Errorf("admission policies %v and bindings %v exist, not %v", found, bound, wanted)
	}
	return nil
}
