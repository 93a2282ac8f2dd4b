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
	// kube-apiserver probes a server that does not answer every 30 s.
	servedMax = 35 * time.Second
	// A kubelet whose renewal fails tries again within 7 s, and the machine is slow.
	renewedMax = 15 * time.Second
	// kube-controller-manager's watch resumes within 60 s. Then the round's grace period begins, and its next check
	// follows.
	silentMax = 85 * time.Second
)

// Our server is down for longer than a node may be silent, while kube-controller-manager leads. Its circuit breaker
// (NodeControllerLeaseCircuitBreaker) waits for the server, and marks no node meanwhile. Afterwards the monitoring of
// nodes continues.
//
// After the outage, nodes that have not renewed yet are marked. Their kubelets report them as Ready again.
//
//	E2E_STOP, E2E_START   commands that stop and start our server
//	E2E_OUTAGE_SECONDS    seconds between the two (60)
func TestOutage(t *testing.T) {
	if os.Getenv("E2E_STOP") == "" {
		t.Skip("tests/e2e/run runs this test after the suite")
	}
	outage := time.Duration(number("E2E_OUTAGE_SECONDS", 60)) * time.Second
	space := namespace(t)
	check(t, outage+4*time.Minute, func(ctx context.Context) error {
		config := speaking(user("admin"), contentTypes["protobuf"])
		s := &scene{t: t, space: space, configs: []*rest.Config{config, config}}
		ctx, s.stop = context.WithCancel(ctx)
		defer s.end()
		if err := s.beginNodes(ctx); err != nil {
			return err
		}
		// By then every kubelet has renewed.
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
		if err := eventually(ctx, renewedMax, s.renewedSince(started)); err != nil {
			return err
		}
		t.Logf("Leases were served %s after the start, and all renewed %s later", served.Sub(started).Round(time.Millisecond),
			time.Since(served).Round(time.Millisecond))
		if err := s.reportAll(ctx); err != nil {
			return err
		}
		// After this no check of the earlier state is running.
		time.Sleep(time.Second)
		_ = s.complaint()

		if err := s.noticed(ctx, 0, silentMax); err != nil {
			return err
		}
		return s.complaint()
	})
}

// served returns an error unless kube-apiserver forwards requests.
func (s *scene) served(ctx context.Context) error {
	_, err := s.heartbeats().Get(ctx, s.nodes[0], metav1.GetOptions{})
	return err
}

// renewedSince checks that each kubelet has renewed since a time.
func (s *scene) renewedSince(then time.Time) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, node := range s.nodes {
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

// reportAll reports each marked node as Ready, as its kubelet does within 10 s.
func (s *scene) reportAll(ctx context.Context) error {
	marked := 0
	for _, name := range s.nodes {
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
	s.t.Logf("%d of %d nodes were marked before they renewed", marked, len(s.nodes))
	return nil
}
