package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	leasecontroller "k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"
)

// TestNamespaceDeletion checks that the deletion of a namespace deletes its Leases.
func TestNamespaceDeletion(t *testing.T) {
	t.Parallel()
	space := namespace(t)
	check(t, 120*time.Second, func(ctx context.Context) error {
		client := admin()
		for _, name := range []string{"a", "b"} {
			if _, err := client.CoordinationV1().Leases(space).Create(ctx, lease(name, "one"), metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		if err := client.CoreV1().Namespaces().Delete(ctx, space, metav1.DeleteOptions{}); err != nil {
			return err
		}
		// If an object is left, the namespace controller checks again after up to a minute.
		if err := eventually(ctx, 100*time.Second, func(ctx context.Context) error {
			object, err := client.CoreV1().Namespaces().Get(ctx, space, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("the namespace still exists: %v %v", object.Status, err)
		}); err != nil {
			return err
		}
		list, err := client.CoordinationV1().Leases(space).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) > 0 {
			return fmt.Errorf("Leases outlived their namespace: %v %v", list.Items, err)
		}
		return nil
	})
}

// TestGarbageCollection checks that the garbage collector deletes a Lease whose owner is deleted, and keeps a Lease
// whose owner exists.
func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	space := namespace(t)
	check(t, 90*time.Second, func(ctx context.Context) error {
		client := admin()
		for _, name := range []string{"goes", "stays"} {
			owner, err := client.CoreV1().ConfigMaps(space).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			owned := lease(name, "one")
			owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: owner.UID}}
			if _, err := client.CoordinationV1().Leases(space).Create(ctx, owned, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		if err := client.CoreV1().ConfigMaps(space).Delete(ctx, "goes", metav1.DeleteOptions{}); err != nil {
			return err
		}
		if err := eventually(ctx, 60*time.Second, leaseGone(client, space, "goes")); err != nil {
			return err
		}
		_, err := client.CoordinationV1().Leases(space).Get(ctx, "stays", metav1.GetOptions{})
		return err
	})
}

func leaseGone(client kubernetes.Interface, namespace, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s/%s still exists: %v", namespace, name, err)
	}
}

// TestNodeHeartbeat renews the Lease of a node with kubelet's code and the node's certificate. The node stays Ready
// while its Lease is renewed. Soon after the last renewal, its condition Ready becomes Unknown. When the Node is
// deleted, its Lease is deleted too.
func TestNodeHeartbeat(t *testing.T) {
	for name, contentType := range contentTypes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := map[string]string{"json": "node-a", "protobuf": "node-b"}[name]
			nodes := admin().CoreV1().Nodes()
			t.Cleanup(func() { _ = nodes.Delete(context.Background(), node, metav1.DeleteOptions{}) })
			var stop context.CancelFunc

			t.Run("ready", func(t *testing.T) {
				check(t, 40*time.Second, func(ctx context.Context) error {
					object, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
					if err != nil {
						return err
					}
					if err := report(ctx, object); err != nil {
						return err
					}
					owned := func(lease *coordinationv1.Lease) error {
						lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: object.UID}}
						return nil
					}
					kubelet, cancel := context.WithCancel(context.Background())
					stop = cancel
					go leasecontroller.NewController(clock.RealClock{}, clientset(speaking(user(node), contentType)), node, 40, nil,
						time.Second, node, corev1.NamespaceNodeLease, owned).Run(kubelet)
					// 12 s are twice the grace period for nodes.
					for until := time.Now().Add(12 * time.Second); time.Now().Before(until); time.Sleep(500 * time.Millisecond) {
						if err := ready(nodes.Get, node, corev1.ConditionTrue)(ctx); err != nil {
							return err
						}
					}
					return nil
				})
			})
			if stop == nil {
				return
			}
			stop()
			t.Run("silent", func(t *testing.T) {
				check(t, 30*time.Second, func(ctx context.Context) error {
					return eventually(ctx, 20*time.Second, ready(nodes.Get, node, corev1.ConditionUnknown))
				})
			})
			t.Run("deleted", func(t *testing.T) {
				check(t, 70*time.Second, func(ctx context.Context) error {
					held, err := admin().CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node, metav1.GetOptions{})
					if err != nil || len(held.OwnerReferences) != 1 || *held.Spec.HolderIdentity != node {
						return fmt.Errorf("the heartbeat's Lease: %v %v", held, err)
					}
					if err := nodes.Delete(ctx, node, metav1.DeleteOptions{}); err != nil {
						return err
					}
					return eventually(ctx, 60*time.Second, leaseGone(admin(), corev1.NamespaceNodeLease, node))
				})
			})
		})
	}
}

// report sets the condition Ready of a node to True, as its kubelet does.
func report(ctx context.Context, node *corev1.Node) error {
	nodes := admin().CoreV1().Nodes()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
		_, err := nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			// kube-controller-manager has changed the taints of the new node. The next attempt updates the changed
			// node.
			if now, err := nodes.Get(ctx, node.Name, metav1.GetOptions{}); err == nil {
				node = now
			}
		}
		return err
	})
}

func ready(get func(context.Context, string, metav1.GetOptions) (*corev1.Node, error), name string, want corev1.ConditionStatus) func(context.Context) error {
	return func(ctx context.Context) error {
		node, err := get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if readiness(node) != want {
			return fmt.Errorf("Ready is not %s: %v", want, node.Status.Conditions)
		}
		return nil
	}
}

// TestNamespaceLifecycle checks that nobody can create a Lease in a namespace that does not exist or is being deleted.
func TestNamespaceLifecycle(t *testing.T) {
	t.Parallel()
	t.Run("missing", func(t *testing.T) {
		check(t, 10*time.Second, func(ctx context.Context) error {
			_, err := admin().CoordinationV1().Leases("e2e-none").Create(ctx, lease("a", "one"), metav1.CreateOptions{})
			if !apierrors.IsNotFound(err) || err.Error() != `namespaces "e2e-none" not found` {
				return fmt.Errorf("want 404, got %v", err)
			}
			return nil
		})
	})
	t.Run("terminating", func(t *testing.T) {
		client := admin()
		space := "e2e-" + rand.String(8)
		object, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: space, Finalizers: []string{"e2e.example.com/hold"}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			release := []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`)
			_, _ = client.CoreV1().Namespaces().Patch(context.Background(), object.Name, "application/json-patch+json", release, metav1.PatchOptions{})
		})
		check(t, 20*time.Second, func(ctx context.Context) error {
			leases := client.CoordinationV1().Leases(space)
			if _, err := leases.Create(ctx, lease("before", "one"), metav1.CreateOptions{}); err != nil {
				return err
			}
			if err := client.CoreV1().Namespaces().Delete(ctx, space, metav1.DeleteOptions{}); err != nil {
				return err
			}
			// Our server learns of the deletion of the namespace through a watch, so a moment later.
			time.Sleep(time.Second)
			_, err := leases.Create(ctx, lease("after", "one"), metav1.CreateOptions{})
			if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return fmt.Errorf("want 403 with cause NamespaceTerminating, got %v", err)
			}
			return nil
		})
	})
}
