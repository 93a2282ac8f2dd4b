package suite

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Duration of a replica's identity Lease, plus a second.
	identityWithin = 7 * time.Second
	// Allowance for a renewal that another replica receives late, and for a slow machine.
	identitySlack = 2 * time.Second
	// Maximum time of a change of the EndpointSlices that need not wait for an identity Lease to expire.
	soon = 5 * time.Second
)

// TestEndpointSlices checks that the replicas maintain the EndpointSlices of their Service. They remove a killed
// replica in time. A stopping replica leaves the EndpointSlices before its listener closes. A starting replica is
// added. The last replica stays in the EndpointSlices, even after it is killed.
//
//	E2E_REPLICAS   set if the server has replicas
//	E2E_STOP       command that stops a replica, with SIGTERM or another signal
//	E2E_START      command that starts a replica
//	E2E_REPLICA_2  address of the second replica
func TestEndpointSlices(t *testing.T) {
	if os.Getenv("E2E_REPLICAS") == "" {
		t.Skip("tests/e2e/run runs this test over etcd, after the suite")
	}
	const one, two = "192.0.2.1", "192.0.2.2"
	stop := func(ctx context.Context, words string) error { return command(ctx, os.Getenv("E2E_STOP")+" "+words) }
	start := func(ctx context.Context, name string) error { return command(ctx, os.Getenv("E2E_START")+" "+name) }
	check(t, 3*time.Minute, func(ctx context.Context) error {
		if err := eventually(ctx, soon, endpointsAre(one, two)); err != nil {
			return err
		}

		if err := stop(ctx, "replica-2 KILL"); err != nil {
			return err
		}
		killed := time.Now()
		if err := eventually(ctx, identityWithin+identitySlack, endpointsAre(one)); err != nil {
			return fmt.Errorf("after a kill: %w", err)
		}
		t.Logf("a killed replica stayed in the EndpointSlices for %s", time.Since(killed).Round(time.Millisecond))
		if err := start(ctx, "replica-2"); err != nil {
			return err
		}
		if err := eventually(ctx, soon, endpointsAre(one, two)); err != nil {
			return fmt.Errorf("after a start: %w", err)
		}

		closed := make(chan time.Time, 1)
		go func() {
			for ctx.Err() == nil {
				connection, err := net.DialTimeout("tcp", os.Getenv("E2E_REPLICA_2"), time.Second)
				if err != nil {
					break
				}
				connection.Close()
				time.Sleep(5 * time.Millisecond)
			}
			closed <- time.Now()
		}()
		stopped := make(chan error, 1)
		go func() { stopped <- stop(ctx, "replica-2") }()
		if err := eventually(ctx, soon, endpointsAre(one)); err != nil {
			return fmt.Errorf("after a stop: %w", err)
		}
		left := time.Now()
		after := (<-closed).Sub(left)
		t.Logf("the listener of a stopping replica closed %s after the replica left the EndpointSlices", after.Round(time.Millisecond))
		if after <= 0 {
			return fmt.Errorf("the listener closed %s before the replica left the EndpointSlices", -after)
		}
		if err := <-stopped; err != nil {
			return err
		}

		if err := stop(ctx, "replica-1 KILL"); err != nil {
			return err
		}
		time.Sleep(identityWithin + identitySlack)
		if err := endpointsAre(one)(ctx); err != nil {
			return fmt.Errorf("after the kill of the last replica: %w", err)
		}
		for _, name := range []string{"replica-1", "replica-2"} {
			if err := start(ctx, name); err != nil {
				return err
			}
		}
		return eventually(ctx, soon, endpointsAre(one, two))
	})
}

// endpointsAre returns a check that the EndpointSlices of the Service have exactly these addresses, in sorted order.
// Each endpoint must name its node, also in the hint for that node's kube-proxy.
func endpointsAre(want ...string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		list, err := clientset(user("admin")).DiscoveryV1().EndpointSlices("kube-system").List(ctx, metav1.ListOptions{
			LabelSelector: "kubernetes.io/service-name=coordination-apiserver",
		})
		if err != nil {
			return err
		}
		var held []string
		for _, slice := range list.Items {
			for _, endpoint := range slice.Endpoints {
				held = append(held, endpoint.Addresses...)
				node := "machine-" + endpoint.Addresses[0][len("192.0.2."):]
				if endpoint.NodeName == nil || *endpoint.NodeName != node || endpoint.Hints == nil ||
					!slices.Equal(endpoint.Hints.ForNodes, []discoveryv1.ForNode{{Name: node}}) {
					return fmt.Errorf("an endpoint does not name its node %s: %s", node, endpoint.String())
				}
			}
		}
		slices.Sort(held)
		if !slices.Equal(held, want) {
			return fmt.Errorf("the EndpointSlices have %s, not %s", strings.Join(held, ", "), strings.Join(want, ", "))
		}
		return nil
	}
}
