package suite

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

const (
	// Maximum time until an informer has a change of built-in storage after the rollback. After a few failures,
	// client-go waits for up to 13 s. Then kube-apiserver may refuse for 43 s to list at a resourceVersion of our
	// server.
	relistedMax = 60 * time.Second
	// Maximum time without writes after which every leader still leads. A leader gives up after 10 s without a renewal,
	// and tries again every 2 s.
	leadersOutageMax = 7 * time.Second
	// jsonpath of the Service's name in the APIService.
	servicePath = "jsonpath={.spec.service.name}"
)

// TestTakeoverServerKilled kills all our servers right before a rollback. The rollback must fail and change nothing,
// since no server answers. When the servers run again, the rollback must succeed. Then each informer must receive the
// changes of built-in storage, whatever state its watch was in. The log has the time that each informer needed, and the
// time for which nobody could write.
//
//	E2E_STOP, E2E_START  commands that stop and start all our servers
//
// TestTakeover describes the other variables.
func TestTakeoverServerKilled(t *testing.T) {
	if os.Getenv("E2E_TAKEOVER") == "" || os.Getenv("E2E_STOP") == "" {
		t.Skip("tests/e2e/run runs this test after the suite, unless the Leases are in memory")
	}
	space := namespace(t)
	check(t, 8*time.Minute, func(ctx context.Context) error {
		scene, err := newScene(ctx, t, space, lostLateMax)
		if err != nil {
			return err
		}
		defer scene.end()
		if err := scene.takeOverAndWatch(ctx); err != nil {
			return err
		}
		before, err := scene.fixed(ctx)
		if err != nil {
			return err
		}
		if err := scene.complaint(); err != nil {
			return fmt.Errorf("before the kill: %w", err)
		}
		outage, err := scene.rollBackKilled(ctx)
		if err != nil {
			return err
		}
		if err := scene.compare(ctx, before); err != nil {
			return err
		}
		if err := scene.measureWatchers(ctx, before); err != nil {
			return err
		}
		// A renewal waits for the start of the servers and for the rollback.
		scene.lateMax += outage
		if outage > leadersOutageMax {
			t.Logf("leaders and nodes after an outage of %s: %v", outage.Round(time.Millisecond), scene.complaint())
		}
		return scene.outcome()
	})
}

// takeOverAndWatch takes the cluster over, and starts informers through both kube-apiservers. It returns when all
// informers have a change that was made at our server.
func (s *scene) takeOverAndWatch(ctx context.Context) error {
	if _, _, err := s.succeed(ctx, "E2E_TAKEOVER"); err != nil {
		return err
	}
	if err := s.beginInformers(); err != nil {
		return err
	}
	informer := leaseInformer(clientset(s.configs[0]), s.space)
	if _, err := start(s.alive, informer); err != nil {
		return err
	}
	s.informers = append(s.informers, informersOf{own: informer})
	if err := s.acquireFixed(ctx); err != nil {
		return err
	}
	return eventually(ctx, fedMax, s.informersAgree)
}

// rollBackKilled kills our servers, tries a rollback, starts the servers again, and rolls back. It returns the time
// from the kill to the end of the rollback.
func (s *scene) rollBackKilled(ctx context.Context) (time.Duration, error) {
	killed := time.Now()
	if err := command(ctx, os.Getenv("E2E_STOP")+" KILL"); err != nil {
		return 0, err
	}
	if err := s.failsToRollBack(ctx); err != nil {
		return 0, err
	}
	if err := command(ctx, os.Getenv("E2E_START")); err != nil {
		return 0, err
	}
	s.t.Logf("the servers were ready %s after the kill", time.Since(killed).Round(time.Millisecond))
	// If kube-apiserver has noticed the outage, it forwards no request until it has probed the servers again. Until
	// then, the rollback fails and is repeated.
	if err := eventually(ctx, servedMax, func(ctx context.Context) error {
		_, _, err := s.succeed(ctx, "E2E_ROLLBACK")
		return err
	}); err != nil {
		return 0, err
	}
	outage := time.Since(killed)
	s.t.Logf("the rollback was complete %s after the kill", outage.Round(time.Millisecond))
	return outage, nil
}

// failsToRollBack checks that a rollback fails soon while no server runs, and leaves the APIService as it is.
func (s *scene) failsToRollBack(ctx context.Context) error {
	began := time.Now()
	failed := command(ctx, os.Getenv("E2E_ROLLBACK"))
	took := time.Since(began)
	if failed == nil {
		return fmt.Errorf("a rollback without servers has succeeded")
	}
	s.t.Logf("a rollback without servers has failed after %s: %v", took.Round(time.Millisecond), failed)
	if took > switchMax {
		return fmt.Errorf("a rollback without servers took %s", took)
	}
	service, err := (kubectl{s.space}).run(ctx, "", "get", "apiservice", apiServiceName, "-o", servicePath)
	if err == nil && service == "" {
		err = fmt.Errorf("a rollback without servers has changed the APIService")
	}
	return err
}

// measureWatchers changes a built-in Lease, and waits until every informer has the change. It logs the times.
func (s *scene) measureWatchers(ctx context.Context, held map[string]coordinationv1.Lease) error {
	began := time.Now()
	if err := eventually(ctx, newWatchMax, func(ctx context.Context) error {
		if current, err := s.fixed(ctx); err == nil {
			held = current
		}
		_, err := s.renewFixed(ctx, held)
		return err
	}); err != nil {
		return fmt.Errorf("the first write after the rollback: %w", err)
	}
	s.t.Logf("a client could write %s after the rollback", time.Since(began).Round(time.Millisecond))
	written := time.Now()
	listed, err := s.fixed(ctx)
	if err != nil {
		return err
	}
	times, err := s.caughtUp(ctx, written, shownOf(listed))
	s.t.Logf("time until each informer had a change after the rollback:\n%s", strings.Join(times, "\n"))
	return err
}

// caughtUp waits until each informer has the wanted Leases. It returns the time of each informer that has them, and an
// error if one does not.
func (s *scene) caughtUp(ctx context.Context, since time.Time, wanted map[string]string) ([]string, error) {
	var times []string
	isDone := map[string]bool{}
	err := eventually(ctx, relistedMax, func(context.Context) error {
		var behind error
		for start, some := range s.informers {
			for name, compare := range some.each() {
				name = fmt.Sprintf("informers of start %d, %s", start, name)
				if isDone[name] {
					continue
				}
				if err := compare(wanted); err != nil {
					behind = fmt.Errorf("%s: %w", name, err)
					continue
				}
				isDone[name] = true
				times = append(times, fmt.Sprintf("%6.1f s  %s", time.Since(since).Seconds(), name))
			}
		}
		return behind
	})
	slices.Sort(times)
	return times, err
}
