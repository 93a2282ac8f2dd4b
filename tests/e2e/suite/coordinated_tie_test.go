package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	// Maximum time until a candidate leads, if kube-apiserver prefers the same candidate in each election.
	preferredMax = 20 * time.Second
	// Maximum time until a candidate leads, if both candidates were created in the same second.
	tiedMax = 2 * time.Minute
)

// TestCoordinatedTie measures elections between two candidates with the same versions. kube-apiserver prefers the older
// candidate, but creation times have a resolution of one second. For two candidates of the same second, the preferred
// one may change from one election to the next. So kube-apiserver may elect the first candidate, and then prefer the
// second one. The first candidate then does not renew its Lease, and kube-apiserver may elect it again. The test logs
// the time until one of them leads. Candidates of different seconds must lead within preferredMax.
//
//	E2E_TIES   number of elections of each kind (5)
func TestCoordinatedTie(t *testing.T) {
	onlyCoordinated(t)
	count := number("E2E_TIES", 5)
	check(t, 2*tiedMax, func(ctx context.Context) error {
		for _, apart := range []bool{false, true} {
			space, gap, limit := namespace(t), 200*time.Millisecond, tiedMax
			if apart {
				gap, limit = 1500*time.Millisecond, preferredMax
			}
			times := make([]time.Duration, count)
			if err := each(count, func(i int) (err error) {
				times[i], err = elect(ctx, space, fmt.Sprintf("lock-%d", i), gap, limit)
				return err
			}); err != nil {
				return err
			}
			slices.Sort(times)
			t.Logf("candidates from different seconds: %t; times until a candidate led: %s", apart, times)
		}
		return nil
	})
}

// each calls a function for 0 to count-1 concurrently, and returns all errors.
func each(count int, body func(i int) error) error {
	results := make(chan error, count)
	for i := range count {
		go func() { results <- body(i) }()
	}
	var all error
	for range count {
		all = errors.Join(all, <-results)
	}
	return all
}

// elect starts a candidate at the beginning of a second, and another one after a gap. It returns the time from the
// second start until one of them leads.
func elect(parent context.Context, space, lock string, gap, limit time.Duration) (time.Duration, error) {
	ctx, stop := context.WithCancel(parent)
	defer stop()
	var leads atomic.Bool
	time.Sleep(untilNextSecond())
	if err := nominate(ctx, space, lock, lock+"-a", &leads); err != nil {
		return 0, err
	}
	time.Sleep(gap)
	if err := nominate(ctx, space, lock, lock+"-b", &leads); err != nil {
		return 0, err
	}
	began := time.Now()
	err := eventually(ctx, limit, func(context.Context) error {
		if !leads.Load() {
			return fmt.Errorf("no candidate of %s leads", lock)
		}
		return nil
	})
	return time.Since(began).Round(100 * time.Millisecond), err
}

// nominate starts a candidate, as a component with client-go does.
func nominate(ctx context.Context, space, lock, name string, leads *atomic.Bool) error {
	client := admin()
	candidate, _, err := leaderelection.NewCandidate(client, space, name, lock, "1.0.0", "1.0.0", coordinationv1.OldestEmulationVersion)
	if err != nil {
		return err
	}
	config := resourcelock.ResourceLockConfig{Identity: name}
	held, err := resourcelock.New(resourcelock.LeasesResourceLock, space, lock, client.CoreV1(), client.CoordinationV1(), config)
	if err != nil {
		return err
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: held, Name: lock, Coordinated: true,
		LeaseDuration: usual.duration, RenewDeadline: usual.deadline, RetryPeriod: usual.retry,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leads.Store(true) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	go candidate.Run(ctx)
	go elector.Run(ctx)
	return nil
}
