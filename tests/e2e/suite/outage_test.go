package suite

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const (
	// Maximum time from the start of our server until kube-apiserver forwards requests. kube-apiserver probes an
	// unavailable server every 30 s.
	servedMax = 35 * time.Second
	// Maximum time until all kubelets have renewed. A kubelet whose renewal fails tries again within 7 s. The rest is
	// for a slow machine.
	renewedMax = 15 * time.Second
	// Maximum time until kube-controller-manager's watch of Leases resumes, and interval of its checks of nodes.
	watchedMax, lookMax = 60 * time.Second, 5 * time.Second
)

// TestOutage stops our server for longer than the grace period for nodes, while kube-controller-manager leads.
// kube-controller-manager's circuit breaker (NodeControllerLeaseCircuitBreaker) waits for the server, and must mark no
// node as not ready meanwhile. After the outage, kube-controller-manager must mark silent nodes again.
//
// Right after the outage, kube-controller-manager may mark nodes whose kubelets have not renewed yet. Their kubelets
// report them as Ready again.
//
//	E2E_STOP, E2E_START    commands that stop and start our server
//	E2E_OUTAGE_SECONDS     seconds from the stop to the start (120)
//	E2E_GRACE_SECONDS      grace period for nodes, in seconds (20)
//	E2E_KEEP_CONTROLLERS   command that starts kube-controller-manager if it does not run; if set, the test repeats
//	                       the command, as a kubelet would
func TestOutage(t *testing.T) {
	if os.Getenv("E2E_STOP") == "" {
		t.Skip("tests/e2e/run runs this test after the suite")
	}
	outage := time.Duration(number("E2E_OUTAGE_SECONDS", 120)) * time.Second
	grace := time.Duration(number("E2E_GRACE_SECONDS", 20)) * time.Second
	space := namespace(t)
	check(t, outage+4*time.Minute, func(ctx context.Context) error {
		config := speaking(user("admin"), contentTypes["protobuf"])
		s := &scene{t: t, space: space, configs: []*rest.Config{config, config}}
		ctx, s.stop = context.WithCancel(ctx)
		defer s.end()
		s.keepControllers(ctx)
		if err := s.beginNodes(ctx); err != nil {
			return err
		}
		// In this time, every kubelet renews.
		time.Sleep(kubeletInterval + 2*time.Second)

		if err := command(ctx, os.Getenv("E2E_STOP")); err != nil {
			return err
		}
		time.Sleep(outage)
		if err := s.complaint(); err != nil {
			return fmt.Errorf("during the outage: %w", err)
		}
		if err := command(ctx, os.Getenv("E2E_START")); err != nil {
			return err
		}
		started := time.Now()
		if err := eventually(ctx, servedMax, s.served); err != nil {
			return err
		}
		served := time.Now()
		if err := eventually(ctx, renewedMax, s.renewedSince(started, s.nodes)); err != nil {
			return err
		}
		t.Logf("Leases were served %s after the start, and all renewed %s later", served.Sub(started).Round(time.Millisecond),
			time.Since(served).Round(time.Millisecond))
		if err := s.reportAll(ctx, s.nodes); err != nil {
			return err
		}
		// A check that began before reportAll may still fail within this second. Its failure is ignored.
		time.Sleep(time.Second)
		_ = s.complaint()

		if err := s.noticed(ctx, 0, watchedMax+grace+lookMax); err != nil {
			return err
		}
		return s.complaint()
	})
}

// keepControllers starts kube-controller-manager again whenever it exits, as a kubelet does.
func (s *scene) keepControllers(ctx context.Context) {
	start := os.Getenv("E2E_KEEP_CONTROLLERS")
	if start == "" {
		return
	}
	s.running.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(time.Second) {
			// The command waits until kube-controller-manager leads, which is impossible during the outage. So its
			// error is ignored.
			_ = command(ctx, start)
		}
	})
}

// served returns an error unless kube-apiserver forwards requests to our server.
func (s *scene) served(ctx context.Context) error {
	_, err := s.heartbeats().Get(ctx, s.nodes[0], metav1.GetOptions{})
	return err
}

// renewedSince returns a check that the kubelets of these nodes have renewed since a time.
func (s *scene) renewedSince(then time.Time, nodes []string) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, node := range nodes {
			held, err := s.heartbeats().Get(ctx, node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if held.Spec.RenewTime.Time.Before(then) {
				return fmt.Errorf("%s renewed at %s", node, held.Spec.RenewTime)
			}
		}
		return nil
	}
}

// reportAll sets the condition Ready of these nodes to True, if it is not. Their kubelets would do that within 10 s.
func (s *scene) reportAll(ctx context.Context, nodes []string) error {
	marked := 0
	for _, name := range nodes {
		node, err := admin().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if node.Status.Conditions[0].Status == corev1.ConditionTrue {
			continue
		}
		marked++
		if err := report(ctx, node); err != nil {
			return err
		}
	}
	s.t.Logf("%d of %d nodes were marked as not ready before they renewed", marked, len(nodes))
	return nil
}
