package suite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// candidate is one participant of an election with client-go.
type candidate struct {
	leads   atomic.Bool
	stop    context.CancelFunc
	stopped chan struct{}
}

// pace is the durations of an election: of the Lease, until the renew deadline, and between retries.
type pace struct{ duration, deadline, retry time.Duration }

var (
	// quick is a fast pace. It allows for requests that take 3 s, as on a busy machine.
	quick = pace{6 * time.Second, 4 * time.Second, 250 * time.Millisecond}
	// usual is the default pace of the control plane's components.
	usual = pace{15 * time.Second, 10 * time.Second, 2 * time.Second}
)

func stand(ctx context.Context, config *rest.Config, namespace, identity string, release bool) (*candidate, error) {
	return standFor(ctx, config, namespace, "election", identity, quick, release)
}

func standFor(ctx context.Context, config *rest.Config, namespace, lock, identity string, pace pace, release bool) (*candidate, error) {
	ctx, cancel := context.WithCancel(ctx)
	c := &candidate{stop: cancel, stopped: make(chan struct{})}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: lock},
			Client:     clientset(config).CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration:   pace.duration,
		RenewDeadline:   pace.deadline,
		RetryPeriod:     pace.retry,
		ReleaseOnCancel: release,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { c.leads.Store(true) },
			OnStoppedLeading: func() { c.leads.Store(false) },
		},
	})
	if err != nil {
		cancel()
		return nil, err
	}
	go func() { defer close(c.stopped); elector.Run(ctx) }()
	return c, nil
}

func (c *candidate) end() { c.stop(); <-c.stopped }

// TestLeaderElection runs two candidates and ends the leader, once with a release of the Lease and once without. The
// other candidate must lead at once after a release. Otherwise it must lead when the Lease has expired, and not before.
func TestLeaderElection(t *testing.T) {
	for name, release := range map[string]bool{"released": true, "abandoned": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachContentType(t, 80*time.Second, func(ctx context.Context, t *testing.T, config *rest.Config) error {
				space := namespace(t)
				first, err := stand(ctx, config, space, "first", release)
				if err != nil {
					return err
				}
				defer first.end()
				if err := eventually(ctx, 20*time.Second, leads(first, true)); err != nil {
					return err
				}
				second, err := stand(ctx, config, space, "second", release)
				if err != nil {
					return err
				}
				defer second.end()
				// The loop lasts longer than the Lease's duration. So the first candidate still leads only because it
				// renews.
				for until := time.Now().Add(quick.duration + time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
					if !first.leads.Load() || second.leads.Load() {
						return fmt.Errorf("first leads: %t, second leads: %t", first.leads.Load(), second.leads.Load())
					}
				}
				// client-go may abandon a renewal in flight when the candidate ends. The server may still serve it, and
				// the release then gets 409. So the candidate must end between two renewals.
				if err := awaitRenewal(ctx, clientset(config).CoordinationV1().Leases(space), "election"); err != nil {
					return err
				}
				first.end()
				left := time.Now()
				if err := eventually(ctx, 20*time.Second, leads(second, true)); err != nil {
					return err
				}
				// A Lease that is not released lasts for its duration from the last renewal, which was at most 0.55 s
				// before `left`.
				if took := time.Since(left); release != (took < quick.duration-time.Second) {
					return fmt.Errorf("the hand-over took %s", took)
				}
				held, err := clientset(config).CoordinationV1().Leases(space).Get(ctx, "election", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if *held.Spec.HolderIdentity != "second" || *held.Spec.LeaseTransitions < 1 {
					return fmt.Errorf("the spec of the Lease is %v", held.Spec)
				}
				return nil
			})
		})
	}
}

// awaitRenewal waits for a renewal of the Lease, and returns right after it. So the next renewal is not in flight yet.
func awaitRenewal(ctx context.Context, leases coordinationclient.LeaseInterface, name string) error {
	before, err := leases.Get(ctx, name, metav1.GetOptions{})
	for err == nil {
		var held *coordinationv1.Lease
		held, err = leases.Get(ctx, name, metav1.GetOptions{})
		if err == nil && !held.Spec.RenewTime.Equal(before.Spec.RenewTime) {
			// The candidate may not have received the answer to its renewal yet.
			time.Sleep(100 * time.Millisecond)
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// TestElectionRestart kills the process that serves the Leases, and restarts it. Storage in memory loses the Leases,
// other storage keeps them. The leader continues or stops leading, and two candidates never lead at once.
func TestElectionRestart(t *testing.T) {
	for name, config := range map[string]*rest.Config{"aggregated": user("admin"), "direct": direct("admin")} {
		t.Run(name, func(t *testing.T) {
			check(t, 120*time.Second, func(ctx context.Context) error {
				space := namespace(t)
				candidates := make([]*candidate, 6)
				for number := range candidates {
					c, err := stand(ctx, config, space, fmt.Sprint("candidate-", number), false)
					if err != nil {
						return err
					}
					defer c.end()
					candidates[number] = c
				}
				oneLeads := func(context.Context) error {
					for _, c := range candidates {
						if c.leads.Load() {
							return nil
						}
					}
					return errors.New("nobody leads")
				}
				watching, stop := context.WithCancel(ctx)
				two := make(chan error, 1)
				go func() { two <- twoLead(watching, candidates) }()
				defer stop()
				for range 3 {
					if err := eventually(ctx, 30*time.Second, oneLeads); err != nil {
						return err
					}
					if err := restart(ctx); err != nil {
						return err
					}
					// A leader that cannot renew stops leading within this time.
					time.Sleep(quick.duration)
				}
				if err := eventually(ctx, 30*time.Second, oneLeads); err != nil {
					return err
				}
				stop()
				return <-two
			})
		})
	}
}

// twoLead returns an error when two candidates lead at once. Otherwise it returns when the context ends.
func twoLead(ctx context.Context, candidates []*candidate) error {
	for ctx.Err() == nil {
		var leaders []int
		for number, c := range candidates {
			if c.leads.Load() {
				leaders = append(leaders, number)
			}
		}
		if len(leaders) > 1 {
			return fmt.Errorf("%v lead at once", leaders)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func leads(c *candidate, want bool) func(context.Context) error {
	return func(context.Context) error {
		if c.leads.Load() != want {
			return fmt.Errorf("leads: %t", !want)
		}
		return nil
	}
}

// TestControllerManagerElection checks that the control plane's kube-controller-manager continues to renew its Lease.
func TestControllerManagerElection(t *testing.T) {
	t.Parallel()
	check(t, 60*time.Second, func(ctx context.Context) error {
		var holder string
		var last time.Time
		for renewals := 0; renewals < 4; {
			held, err := theLease(ctx, controllerManager)
			if err != nil {
				// The Lease may be missing until its holder creates it again.
				if ctx.Err() != nil {
					return err
				}
			} else if renewed := held.Spec.RenewTime.Time; renewed.After(last) {
				if renewals > 0 && *held.Spec.HolderIdentity != holder {
					return fmt.Errorf("%s lost the Lease to %s", holder, *held.Spec.HolderIdentity)
				}
				holder, last = *held.Spec.HolderIdentity, renewed
				renewals++
			} else if age := time.Since(renewed); age > 20*time.Second {
				return fmt.Errorf("the Lease was not renewed for %s", age)
			}
			time.Sleep(200 * time.Millisecond)
		}
		if holder == "" {
			return fmt.Errorf("the Lease has no holder")
		}
		return nil
	})
}

// TestAPIServerIdentity checks that kube-apiserver renews its identity Lease, also if the aggregator forwards the
// renewals to our server.
func TestAPIServerIdentity(t *testing.T) {
	t.Parallel()
	check(t, 40*time.Second, func(ctx context.Context) error {
		return eventually(ctx, 30*time.Second, func(ctx context.Context) error {
			list, err := admin().CoordinationV1().Leases("kube-system").List(ctx,
				metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=kube-apiserver"})
			if err != nil {
				return err
			}
			for _, held := range list.Items {
				if time.Since(held.Spec.RenewTime.Time) < 15*time.Second {
					return nil
				}
			}
			return fmt.Errorf("no identity Lease was renewed in the last 15 s: %v", list.Items)
		})
	})
}
