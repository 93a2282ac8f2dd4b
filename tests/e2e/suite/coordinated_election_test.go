package suite

import (
	"context"
	"fmt"
	"testing"
	"time"
)

const (
	// Maximum time until a candidate with an older version is preferred. It is also the maximum time from then until
	// this candidate leads. A leader does not renew its Lease while another candidate is preferred. It gives up after
	// two thirds of the Lease's duration, and an election follows.
	givesWayMax = 40 * time.Second
	// Maximum time until kube-apiserver's watch of built-in Leases ends. client-go limits a watch to ten minutes.
	informedMax = 11 * time.Minute
)

// TestCoordinatedElection checks that kube-apiserver elects a kube-controller-manager, with the feature gate
// CoordinatedLeaderElection. The first manager leads. After it is killed, the second one leads. A third one has an
// older emulation version. It becomes the preferred holder, and the newer leader yields. A newer manager that starts
// later leads only when the older one is killed.
//
// After kube-apiserver has switched to our server, kube-apiserver's informer still watches built-in Leases. So
// kube-apiserver holds an election every few seconds. When that watch has ended, kube-apiserver holds no election while
// the right candidate leads.
//
//	E2E_INFORMED   1: the test first waits for the end of that watch, for up to ten minutes
func TestCoordinatedElection(t *testing.T) {
	informed := number("E2E_INFORMED", 0) == 1
	check(t, informedMax+5*time.Minute, func(ctx context.Context) error {
		e := newManagers(ctx, t)
		if informed {
			if err := informerMoved(ctx, t); err != nil {
				return err
			}
		}
		older, err := olderVersion()
		if err != nil {
			return err
		}
		first, err := e.start(ctx)
		if err != nil {
			return err
		}
		if err := e.awaitLeader(ctx, first, electedMax); err != nil {
			return err
		}
		second, err := e.start(ctx)
		if err != nil {
			return err
		}
		joined := time.Now()
		if err := e.leadsOn(ctx, first); err != nil {
			return err
		}
		asked, err := lastAsked(ctx)
		if err != nil {
			return err
		}
		t.Logf("kube-apiserver pinged the candidates while the first one led: %t", asked.After(joined))
		if informed && asked.After(joined) {
			return fmt.Errorf("kube-apiserver held an unnecessary election at %s", asked)
		}
		if err := e.killed(ctx, first, second); err != nil {
			return err
		}

		began := time.Now()
		oldest, err := e.start(ctx, "--emulated-version="+older)
		if err != nil {
			return err
		}
		if err := eventually(ctx, givesWayMax, func(ctx context.Context) error {
			return e.says(ctx, second.identity, oldest.identity)
		}); err != nil {
			return err
		}
		t.Logf("the candidate with version %s was preferred %s after its start", older, time.Since(began).Round(100*time.Millisecond))
		if err := e.awaitLeader(ctx, oldest, givesWayMax); err != nil {
			return err
		}
		t.Logf("the candidate with version %s led %s after its start", older, time.Since(began).Round(100*time.Millisecond))
		if err := eventually(ctx, 10*time.Second, func(context.Context) error { return second.over() }); err != nil {
			return err
		}
		newer, err := e.start(ctx)
		if err != nil {
			return err
		}
		if err := e.leadsOn(ctx, oldest); err != nil {
			return err
		}
		if err := e.killed(ctx, oldest, newer); err != nil {
			return err
		}
		return e.twoLed()
	})
}

// informerMoved waits until kube-apiserver no longer watches built-in Leases.
func informerMoved(ctx context.Context, t *testing.T) error {
	began := time.Now()
	err := eventually(ctx, informedMax, func(ctx context.Context) error {
		count, err := oldWatches(ctx)
		if err == nil && count > 0 {
			err = fmt.Errorf("%d watches of built-in Leases", count)
		}
		return err
	})
	t.Logf("the watch of built-in Leases ended after %s", time.Since(began).Round(time.Second))
	return err
}
