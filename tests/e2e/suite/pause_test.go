package suite

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// pause is a reason for which kube-controller-manager's circuit breaker waits, and a switch during this time.
type pause struct {
	name string
	// Whether our server has the Leases at the beginning, and not built-in storage.
	ours bool
	// Environment variables of the commands that begin and end an outage, in which clients cannot read Leases. Without
	// an outage, a first switch in the other direction is the reason.
	begin, end string
	// Environment variable of the command of the switch.
	change string
	// Whether the outage lasts until the end of the test, and not only until the switch.
	late bool
}

// TestPause switches the cluster while kube-controller-manager's circuit breaker (NodeControllerLeaseCircuitBreaker)
// waits. The circuit breaker waits if it cannot read Leases, or if its cache is behind. While it waits, no healthy node
// may be marked as not ready. Later, no node whose kubelet has renewed may be marked. After the switch, the test
// restarts kube-controller-manager, as docs/deploy.md asks. Then kube-controller-manager must mark both silent nodes as
// not ready: one is silent since before the switch, and one since after it. The test logs whether they were marked
// before the restart.
//
//	E2E_TAKEOVER, E2E_ROLLBACK, E2E_BY_HAND   commands of the switches; the last one rolls back with kubectl
//	E2E_STOP, E2E_START                       commands that stop and start our server
//	E2E_STOP_ETCD, E2E_START_ETCD             commands that stop and start the etcd of kube-apiserver
//	E2E_STOP_CONTROLLERS, E2E_START_CONTROLLERS   commands that stop and start kube-controller-manager
//	E2E_GRACE_SECONDS                         grace period for nodes, in seconds (50)
//	E2E_PAUSE_SECONDS                         seconds of an outage (90)
//	E2E_UNRESTARTED_SECONDS                   seconds from the switch to the restart (90)
func TestPause(t *testing.T) {
	if os.Getenv("E2E_STOP_ETCD") == "" {
		t.Skip("`tests/e2e/run pause` runs this test")
	}
	for _, p := range []pause{
		{name: "etcd fails, takeover", begin: "E2E_STOP_ETCD", end: "E2E_START_ETCD", change: "E2E_TAKEOVER"},
		{name: "server fails, rollback", ours: true, begin: "E2E_STOP", end: "E2E_START", change: "E2E_ROLLBACK"},
		{name: "server fails, rollback by hand", ours: true, begin: "E2E_STOP", end: "E2E_START", change: "E2E_BY_HAND", late: true},
		{name: "takeover, rollback", change: "E2E_ROLLBACK"},
		{name: "rollback, takeover", ours: true, change: "E2E_TAKEOVER"},
	} {
		t.Run(p.name, func(t *testing.T) { check(t, 12*time.Minute, func(ctx context.Context) error { return p.run(ctx, t) }) })
	}
}

func (p pause) run(ctx context.Context, t *testing.T) error {
	seconds := func(variable string, otherwise int) time.Duration {
		return time.Duration(number(variable, otherwise)) * time.Second
	}
	grace, length, unrestarted := seconds("E2E_GRACE_SECONDS", 50), seconds("E2E_PAUSE_SECONDS", 90), seconds("E2E_UNRESTARTED_SECONDS", 90)
	side, other := "E2E_ROLLBACK", "E2E_TAKEOVER"
	if p.ours {
		side, other = other, side
	}
	if err := command(ctx, os.Getenv(side)); err != nil {
		return err
	}
	if err := restartControllers(ctx); err != nil {
		return err
	}
	config := speaking(user("admin"), contentTypes["protobuf"])
	s := &scene{t: t, space: namespace(t), configs: []*rest.Config{config, config}}
	ctx, s.stop = context.WithCancel(ctx)
	defer s.end()
	if err := s.beginNodes(ctx); err != nil {
		return err
	}
	// In this time, every kubelet renews.
	time.Sleep(kubeletInterval + 2*time.Second)
	marks := s.beginMarks(ctx)
	// end ends the outage at its first call.
	end := sync.OnceValue(func() error { return command(context.WithoutCancel(ctx), os.Getenv(p.end)) })
	if err := s.complaint(); err != nil {
		return err
	}

	if p.begin == "" {
		// A switch changes resourceVersions. The circuit breaker notices that at the first silent node, and then waits.
		if err := command(ctx, os.Getenv(other)); err != nil {
			return err
		}
		s.kubelets[0].stop()
		time.Sleep(grace + 3*lookMax)
		if err := s.complaint(); err != nil {
			return fmt.Errorf("during the pause: %w", err)
		}
	} else {
		// Without etcd, the test cannot read nodes, and kube-controller-manager cannot mark them.
		s.isUnreadable.Store(!p.ours)
		// The later subtests need the stopped process, even if this subtest fails during the outage.
		defer func() {
			if err := end(); err != nil {
				t.Error(err)
			}
		}()
		if err := command(ctx, os.Getenv(p.begin)); err != nil {
			return err
		}
		s.kubelets[0].stop()
		time.Sleep(length)
		if err := s.complaint(); err != nil {
			return fmt.Errorf("during the pause: %w", err)
		}
		if !p.late {
			if err := end(); err != nil {
				return err
			}
		}
	}
	began := time.Now()
	var err error
	for ctx.Err() == nil {
		if err = command(ctx, os.Getenv(p.change)); err == nil || time.Since(began) > settledMax {
			break
		}
		t.Logf("%s: %v", p.change, err)
		time.Sleep(time.Second)
	}
	if err != nil {
		return err
	}
	switched := time.Now()
	t.Logf("%s succeeded %s after its first attempt began", p.change, switched.Sub(began).Round(100*time.Millisecond))
	if err := eventually(ctx, 30*time.Second, s.renewedSince(switched, s.nodes[1:])); err != nil {
		return err
	}
	t.Logf("healthy nodes had renewed %s after the switch", time.Since(switched).Round(100*time.Millisecond))
	s.isUnreadable.Store(false)
	if p.begin != "" {
		// After an outage, kube-controller-manager may mark nodes whose kubelets have not renewed yet. This is no
		// failure, so the test sets these nodes to Ready again.
		if err := s.reportAll(ctx, s.nodes[1:]); err != nil {
			return err
		}
		time.Sleep(time.Second)
		_ = s.complaint()
	}
	s.kubelets[1].stop()
	time.Sleep(time.Until(switched.Add(unrestarted)))
	t.Logf("before the restart, since the switch: %s", marks.since(switched))
	if err := s.complaint(); err != nil {
		return fmt.Errorf("before the restart: %w", err)
	}

	if err := restartControllers(ctx); err != nil {
		return err
	}
	restarted := time.Now()
	for _, node := range s.nodes[:silent] {
		if err := eventually(ctx, grace+3*lookMax, ready(admin().CoreV1().Nodes().Get, node, corev1.ConditionUnknown)); err != nil {
			return fmt.Errorf("a silent node after the restart: %w", err)
		}
	}
	t.Logf("both silent nodes were marked as not ready %s after the restart", time.Since(restarted).Round(time.Second))
	if err := s.complaint(); err != nil {
		return fmt.Errorf("after the restart: %w", err)
	}
	if p.late {
		return end()
	}
	return nil
}

// restartControllers restarts kube-controller-manager. In this round its lock lasts for 30 minutes. So
// restartControllers deletes the lock, and the new process need not wait for it.
func restartControllers(ctx context.Context) error {
	if err := command(ctx, os.Getenv("E2E_STOP_CONTROLLERS")); err != nil {
		return err
	}
	locks := admin().CoordinationV1().Leases(metav1.NamespaceSystem)
	if err := eventually(ctx, 10*time.Second, func(ctx context.Context) error {
		err := locks.Delete(ctx, controllerManager, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}); err != nil {
		return err
	}
	return command(ctx, os.Getenv("E2E_START_CONTROLLERS"))
}

// marks are the times at which the silent nodes were marked as not ready.
type marks struct {
	mutex sync.Mutex
	at    [silent]time.Time
}

func (s *scene) beginMarks(ctx context.Context) *marks {
	m := &marks{}
	s.running.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(500 * time.Millisecond) {
			for number, node := range s.nodes[:silent] {
				object, err := admin().CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
				if err != nil {
					continue
				}
				m.mutex.Lock()
				if object.Status.Conditions[0].Status != corev1.ConditionUnknown {
					m.at[number] = time.Time{}
				} else if m.at[number].IsZero() {
					m.at[number] = time.Now()
				}
				m.mutex.Unlock()
			}
		}
	})
	return m
}

func (m *marks) since(then time.Time) string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var said string
	for number, at := range m.at {
		if at.IsZero() {
			said += fmt.Sprintf("silent node %d is Ready; ", number)
		} else {
			said += fmt.Sprintf("silent node %d was marked as not ready after %s; ", number, at.Sub(then).Round(time.Second))
		}
	}
	return said
}
