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

	coordinationv1 "k8s.io/api/coordination/v1"
)

const (
	// Maximum delay of a renewal when a replica dies. A kubelet whose renewal fails tries again within 7 s.
	lostLateMax = renewalLateMax + 7*time.Second
	// Time for leaders to renew after a command that has failed.
	afterFailure = 2 * time.Second
	// Maximum time for which nobody can write in a rollback that need not wait for a replica. One second of it is fixed.
	frozenUsualMax = 2 * time.Second
)

// What a rollback prints about the time without writes, in ms.
var frozenFor = regexp.MustCompile(`nobody could write for (\d+) ms`)

// Names of the replicas. They are killed alternately.
var replicaNames = []string{"replica-1", "replica-2"}

// A cluster with two replicas is taken over and rolled back again and again. Each time, one replica is killed right after
// a later line of the command. A command that fails for that reason is run again, and must succeed at the latest when
// the replica has been started again. No node becomes NotReady, no leader is lost, and no lock has two holders.
//
//	E2E_TAKEOVER_REPLICA_KILLS  N kills a replica at every N-th line of each command; 0 or nothing skips the test
//	E2E_RESTART_REPLICA         command that ends a replica, starts it again, and waits until it is ready
//
// TestTakeover describes the other variables.
func TestTakeoverReplicas(t *testing.T) {
	stride := number("E2E_TAKEOVER_REPLICA_KILLS", 0)
	if os.Getenv("E2E_RESTART_REPLICA") == "" || stride <= 0 {
		t.Skip("tests/e2e/run runs this test over etcd if E2E_TAKEOVER_REPLICA_KILLS is set")
	}
	loseReplicas(t, 30*time.Minute, func(ctx context.Context, scene *scene, before map[string]coordinationv1.Lease) error {
		kills, isKilled := 0, true
		for count := stride; isKilled && count <= linesMax; count += stride {
			isKilled = false
			for _, variable := range []string{"E2E_TAKEOVER", "E2E_ROLLBACK"} {
				killed, err := scene.loseReplica(ctx, variable, count, replicaNames[kills%len(replicaNames)])
				if err != nil {
					return fmt.Errorf("%s, replica killed after line %d: %w", variable, count, err)
				}
				if killed {
					kills++
					isKilled = true
				}
			}
			if err := scene.compare(ctx, before); err != nil {
				return err
			}
		}
		t.Logf("%d replicas were killed", kills)
		return nil
	})
}

// A replica is killed right before a rollback, and stays dead. The rollback succeeds at the first attempt, and does not
// wait for the dead replica while writes are stopped.
//
//	E2E_RESTART_REPLICA  as for TestTakeoverReplicas
func TestTakeoverReplicaKilled(t *testing.T) {
	if os.Getenv("E2E_RESTART_REPLICA") == "" {
		t.Skip("tests/e2e/run runs this test over etcd")
	}
	loseReplicas(t, 5*time.Minute, func(ctx context.Context, scene *scene, before map[string]coordinationv1.Lease) error {
		for _, replica := range replicaNames {
			if _, _, err := scene.succeed(ctx, "E2E_TAKEOVER"); err != nil {
				return err
			}
			process, err := processOf(replica)
			if err != nil {
				return err
			}
			if err := process.Kill(); err != nil {
				return err
			}
			printed, rolledBack := outputOf(ctx, os.Getenv("E2E_ROLLBACK"))
			t.Logf("%s is dead:\n%s", replica, printed)
			restarted := command(ctx, os.Getenv("E2E_RESTART_REPLICA")+" "+replica+" KILL")
			if err := errors.Join(rolledBack, restarted); err != nil {
				return fmt.Errorf("%s is dead: %w", replica, err)
			}
			found := frozenFor.FindStringSubmatch(printed)
			if len(found) == 0 {
				return fmt.Errorf("the rollback does not say for how long nobody could write")
			}
			if frozen, err := strconv.Atoi(found[1]); err != nil || time.Duration(frozen)*time.Millisecond > frozenUsualMax {
				return fmt.Errorf("nobody could write for %s ms", found[1])
			}
			if err := scene.compare(ctx, before); err != nil {
				return err
			}
		}
		return nil
	})
}

// loseReplicas runs `lose` on a scene, with the Leases that no client changes. Afterwards the informers agree, and nobody
// has noticed anything.
func loseReplicas(t *testing.T, limit time.Duration, lose func(context.Context, *scene, map[string]coordinationv1.Lease) error) {
	space := namespace(t)
	check(t, limit, func(ctx context.Context) error {
		scene, err := newScene(ctx, t, space, lostLateMax)
		if err != nil {
			return err
		}
		defer scene.end()
		before, err := scene.fixed(ctx)
		if err != nil {
			return err
		}
		if err := lose(ctx, scene, before); err != nil {
			return err
		}
		if err := eventually(ctx, 60*time.Second, scene.informersAgree); err != nil {
			return err
		}
		return scene.outcome()
	})
}

// loseReplica runs a command to its end, and kills a replica right after line number `count`. Then it starts the replica
// again. It returns whether the command has printed that line.
func (s *scene) loseReplica(ctx context.Context, variable string, count int, replica string) (bool, error) {
	process, err := processOf(replica)
	if err != nil {
		return false, err
	}
	var last string
	began := time.Now()
	_, failed := follow(ctx, os.Getenv(variable), func(number int, text string, _ *os.Process) {
		if number == count {
			last = text
			err = process.Kill()
		}
	})
	if err != nil {
		return false, err
	}
	s.t.Logf("%s, %s killed after line %d, %q: succeeded: %t, after %s", variable, replica, count, last, failed == nil, since(began))
	if failed != nil {
		s.t.Log(failed)
		// A switch that has begun must not wait for the killed replica. One that has not begun may fail without it.
		time.Sleep(afterFailure)
		failed = command(ctx, os.Getenv(variable))
		s.t.Logf("%s once more, without %s: succeeded: %t", variable, replica, failed == nil)
	}
	if last != "" {
		if err := command(ctx, os.Getenv("E2E_RESTART_REPLICA")+" "+replica+" KILL"); err != nil {
			return false, err
		}
	}
	if failed != nil {
		s.t.Log(failed)
		if _, _, err := s.succeed(ctx, variable); err != nil {
			return false, err
		}
	}
	return last != "", s.complaint()
}
