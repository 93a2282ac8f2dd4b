package suite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What kube-apiserver adds to the duration of a Lease: it looks every 5 s, gives the candidates 5 s to answer, and the next
// one looks after 2.2 retry periods at the latest.
const lookAndAskMax = 10 * time.Second

// The leader is killed at a moment that chance picks, again and again, and another one leads. Every second time
// kube-apiserver still knows candidates that were killed before, and asks all of them again and again.
//
//	E2E_HAND_OVERS   number of leaders that are killed (2)
//	E2E_INFORMED     1 waits first until kube-apiserver watches no built-in Leases, for up to ten minutes
func TestCoordinatedHandOver(t *testing.T) {
	count := number("E2E_HAND_OVERS", 2)
	check(t, informedMax+time.Duration(count+1)*2*time.Minute, func(ctx context.Context) error {
		e := newManagers(ctx, t)
		if number("E2E_INFORMED", 0) == 1 {
			if err := informerMoved(ctx, t); err != nil {
				return err
			}
		}
		if _, err := e.start(ctx); err != nil {
			return err
		}
		for round := range count {
			if err := e.replenish(ctx); err != nil {
				return err
			}
			if round%2 == 0 {
				if err := e.forget(ctx); err != nil {
					return err
				}
			}
			leader, err := e.settled(ctx)
			if err != nil {
				return err
			}
			time.Sleep(controllersStart + rand.N(lookAndAskMax))
			if err := e.handOver(ctx, leader, round%2 == 0); err != nil {
				return fmt.Errorf("hand-over %d: %w", round, err)
			}
		}
		return e.twoLed()
	})
}

// forget deletes the candidates that were killed, as kube-apiserver does after 30 minutes.
func (e *managers) forget(ctx context.Context) error {
	known, err := candidates(ctx)
	if err != nil {
		return err
	}
	for _, m := range e.alive() {
		delete(known, m.identity)
	}
	for name := range known {
		if err := admin().CoordinationV1beta1().LeaseCandidates(metav1.NamespaceSystem).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// handOver kills the leader, and tells when its Lease was over, when the other one was elected, and when it led.
func (e *managers) handOver(ctx context.Context, leader *manager, forgotten bool) error {
	leader.kill()
	killed := time.Now()
	held, err := theLease(ctx, controllerManager)
	if err != nil {
		return err
	}
	over := held.Spec.RenewTime.Add(e.pace.duration)
	next := e.alive()[0]
	var asked, elected time.Time
	if err := eventually(ctx, e.pace.duration+lookAndAskMax+3*e.pace.retry, func(ctx context.Context) error {
		holder, err := holderOf(ctx, controllerManager)
		if err != nil {
			return err
		}
		if holder == next.identity && elected.IsZero() {
			elected = time.Now()
			if asked, err = lastAsked(ctx); err != nil {
				return err
			}
		}
		if !next.leads(ctx) {
			return fmt.Errorf("%s does not lead", next.identity)
		}
		return nil
	}); err != nil {
		return err
	}
	led := time.Now()
	e.t.Logf("kill -9 of the leader, earlier candidates forgotten: %t; the Lease was over after %.1f s, candidates were last asked %.1f s "+
		"later, the next one was elected %.1f s after the end of the Lease, and led %.1f s after that: %.1f s in all",
		forgotten, over.Sub(killed).Seconds(), asked.Sub(over).Seconds(), elected.Sub(over).Seconds(), led.Sub(elected).Seconds(),
		led.Sub(killed).Seconds())
	return e.says(ctx, next.identity, "")
}
