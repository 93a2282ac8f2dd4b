package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	// A killed kube-apiserver's lock lasts for 15 s. A leader that lost its own lock is restarted and elected.
	settledMax = 90 * time.Second
	// kube-apiserver checks every 5 s whether an election is needed.
	twoElections = 10 * time.Second
	// A kube-controller-manager ends if kube-apiserver fails while it starts its controllers.
	controllersStart = 6 * time.Second
)

// kube-apiserver is restarted. Its informer of Leases may then list built-in storage before the proxy is ready. The
// leader continues to lead. Every second time the leader is killed, and another one leads.
//
//	E2E_RESTART_APISERVER   command that restarts kube-apiserver
//	E2E_RESTARTS            number of restarts (2)
func TestCoordinatedRestart(t *testing.T) {
	restarts := number("E2E_RESTARTS", 2)
	check(t, time.Duration(restarts+1)*3*time.Minute, func(ctx context.Context) error {
		e := newManagers(ctx, t)
		leader, err := e.start(ctx)
		if err != nil {
			return err
		}
		if err := e.awaitLeader(ctx, leader, electedMax); err != nil {
			return err
		}
		time.Sleep(controllersStart)
		for restart := range restarts {
			if err := e.replenish(ctx); err != nil {
				return err
			}
			if leader, err = e.restart(ctx, leader, restart%2 == 0); err != nil {
				return fmt.Errorf("restart %d: %w", restart, err)
			}
		}
		return nil
	})
}

// replenish restarts managers that have ended, as a kubelet does.
func (e *managers) replenish(ctx context.Context) error {
	for len(e.alive()) < 2 {
		if _, err := e.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restart restarts kube-apiserver, and with kill also the leader. It returns the next leader.
func (e *managers) restart(ctx context.Context, leader *manager, kill bool) (*manager, error) {
	elector, err := holderOf(ctx, "leader-election-controller")
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := command(ctx, os.Getenv("E2E_RESTART_APISERVER")); err != nil {
		return nil, err
	}
	ready := time.Now()
	lost := leader.over() == nil
	if kill {
		leader.kill()
	}
	if err := eventually(ctx, settledMax, func(ctx context.Context) error {
		now, err := holderOf(ctx, "leader-election-controller")
		if err == nil && (now == "" || now == elector) {
			err = errors.New("no kube-apiserver elects")
		}
		return err
	}); err != nil {
		return nil, err
	}
	elects := time.Now()
	next, err := e.settled(ctx)
	if err != nil {
		return nil, err
	}
	settled := time.Now()
	if kill {
		time.Sleep(controllersStart)
	} else {
		time.Sleep(time.Until(elects.Add(twoElections)))
	}
	if next, err = e.settled(ctx); err != nil {
		return nil, err
	}
	asked, err := lastAsked(ctx)
	if err != nil {
		return nil, err
	}
	old, err := oldWatches(ctx)
	if err != nil {
		return nil, err
	}
	if !kill && !lost && next != leader {
		return nil, fmt.Errorf("%s lost its lock to %s", leader.identity, next.identity)
	}
	e.t.Logf("ready after %.1f s; leader killed: %t, lost its lock: %t; kube-apiserver elects after %.1f s more, candidates "+
		"asked: %t, watches of all built-in Leases: %d; one leads %.1f s after ready, the same: %t",
		ready.Sub(began).Seconds(), kill, lost, elects.Sub(ready).Seconds(), asked.After(ready), old,
		settled.Sub(ready).Seconds(), next == leader)
	return next, e.twoLed()
}

// settled waits until exactly one manager leads, as the Lease says, and returns it.
func (e *managers) settled(ctx context.Context) (leader *manager, err error) {
	err = eventually(ctx, settledMax, func(ctx context.Context) error {
		leaders := e.leaders(ctx)
		if len(leaders) != 1 {
			return fmt.Errorf("%d managers lead", len(leaders))
		}
		leader = leaders[0]
		held, err := theLease(ctx, controllerManager)
		if err != nil {
			return err
		}
		if ptr.Deref(held.Spec.HolderIdentity, "") != leader.identity || time.Since(held.Spec.RenewTime.Time) > e.pace.deadline {
			return fmt.Errorf("%s leads, but the Lease says %v", leader.identity, &held.Spec)
		}
		return nil
	})
	return leader, err
}

// lastAsked returns when candidates were last pinged, which begins each election.
func lastAsked(ctx context.Context) (last time.Time, err error) {
	list, err := admin().CoordinationV1beta1().LeaseCandidates(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return last, err
	}
	for _, candidate := range list.Items {
		if at := candidate.Spec.PingTime; at != nil && at.After(last) {
			last = at.Time
		}
	}
	return last, nil
}

var oldWatch = regexp.MustCompile(`(?m)^apiserver_longrunning_requests\{.*group="coordination.k8s.io",resource="leases",scope="cluster",.*verb="WATCH".*\} (\d+)$`)

// oldWatches returns the number of watches of all Leases in kube-apiserver's own storage. Forwarded watches do not
// count.
func oldWatches(ctx context.Context) (count int, err error) {
	text, err := admin().CoordinationV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	for _, found := range oldWatch.FindAllStringSubmatch(string(text), -1) {
		one, err := strconv.Atoi(found[1])
		if err != nil {
			return 0, err
		}
		count += one
	}
	return count, nil
}
