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

// candidate is one participant of an election by client-go.
type candidate struct {
	leads   atomic.Bool
	stop    context.CancelFunc
	stopped chan struct{}
}

// pace is how fast an election goes.
type pace struct{ duration, deadline, retry time.Duration }

var (
	// quick leaves room for a request that takes 3 s: a control plane on a busy machine has such.
	quick = pace{6 * time.Second, 4 * time.Second, 250 * time.Millisecond}
	// usual is that of the control plane's components.
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

// Two candidates; the one that leads goes, once in good order and once without a word, and the other takes over: at once
// in the first case, when the Lease has run out in the second.
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
				// Longer than the Lease lasts: it stays where it is because it is renewed.
				for until := time.Now().Add(quick.duration + time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
					if !first.leads.Load() || second.leads.Load() {
						return fmt.Errorf("first leads: %t, second leads: %t", first.leads.Load(), second.leads.Load())
					}
				}
				// client-go cannot release a Lease whose renewal it has just given up: that one may be served, and the release
				// conflicts with it.
				if err := awaitRenewal(ctx, clientset(config).CoordinationV1().Leases(space), "election"); err != nil {
					return err
				}
				first.end()
				left := time.Now()
				if err := eventually(ctx, 20*time.Second, leads(second, true)); err != nil {
					return err
				}
				// An abandoned Lease runs on for its duration from the last renewal, which is 0.55 s ago at most.
				if took := time.Since(left); release != (took < quick.duration-time.Second) {
					return fmt.Errorf("the hand-over took %s", took)
				}
				held, err := clientset(config).CoordinationV1().Leases(space).Get(ctx, "election", metav1.GetOptions{})
				if err != nil {
					return err
				}
				if *held.Spec.HolderIdentity != "second" || *held.Spec.LeaseTransitions < 1 {
					return fmt.Errorf("the Lease says %v", held.Spec)
				}
				return nil
			})
		})
	}
}

// awaitRenewal returns right after the Lease was renewed, so that the next renewal is not yet on its way.
func awaitRenewal(ctx context.Context, leases coordinationclient.LeaseInterface, name string) error {
	before, err := leases.Get(ctx, name, metav1.GetOptions{})
	for err == nil {
		var held *coordinationv1.Lease
		held, err = leases.Get(ctx, name, metav1.GetOptions{})
		if err == nil && !held.Spec.RenewTime.Equal(before.Spec.RenewTime) {
			// The candidate has yet to get its answer.
			time.Sleep(100 * time.Millisecond)
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// What holds the Leases is killed and comes back, with them or without; whoever led goes on or gives up, and at no time
// do two lead.
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
					// Longer than a leader takes to give up.
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

// twoLead looks on until two lead at once, which is an error, or the context ends.
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

// The election of the control plane's own: kube-controller-manager goes on renewing its Lease.
func TestControllerManagerElection(t *testing.T) {
	t.Parallel()
	check(t, 60*time.Second, func(ctx context.Context) error {
		var holder string
		var last time.Time
		for renewals := 0; renewals < 4; {
			held, err := admin().CoordinationV1().Leases("kube-system").Get(ctx, "kube-controller-manager", metav1.GetOptions{})
			if err != nil {
				// It may just have to make it anew.
				if ctx.Err() != nil {
					return err
				}
			} else if renewed := held.Spec.RenewTime.Time; renewed.After(last) {
				if renewals > 0 && *held.Spec.HolderIdentity != holder {
					return fmt.Errorf("%s lost it to %s", holder, *held.Spec.HolderIdentity)
				}
				holder, last = *held.Spec.HolderIdentity, renewed
				renewals++
			} else if age := time.Since(renewed); age > 20*time.Second {
				return fmt.Errorf("not renewed for %s", age)
			}
			time.Sleep(200 * time.Millisecond)
		}
		if holder == "" {
			return fmt.Errorf("nobody holds it")
		}
		return nil
	})
}

// kube-apiserver says by a Lease of its own that it lives, and it too has to go by way of the aggregator.
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
			return fmt.Errorf("none is fresh: %v", list.Items)
		})
	})
}
