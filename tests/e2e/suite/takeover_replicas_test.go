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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Maximum delay of a renewal when a replica dies. A kubelet whose renewal fails tries again within 7 s.
	lostLateMax = renewalLateMax + 7*time.Second
	// Pause between a failed command and its repetition. In the pause, leaders can renew.
	afterFailure = 2 * time.Second
	// Maximum time for which a rollback stops writes, if it need not wait for a replica. During one second of it, the
	// rollback waits until watches end.
	frozenUsualMax = 2 * time.Second
	// Name of the Lease in which our servers store the phase of a switch, and maximum time until one of them returns it.
	handoverLease   = "coordination-apiserver-handover"
	handoverReadMax = 10 * time.Second
)

// frozenFor matches the line of a rollback with the time for which it stopped writes, in ms.
var frozenFor = regexp.MustCompile(`nobody could write for (\d+) ms`)

// replicaNames are the names of the replicas. The tests kill them alternately.
var replicaNames = []string{"replica-1", "replica-2"}

// TestTakeoverReplicas repeatedly takes over a cluster with two replicas and rolls it back. During each command, it
// kills one replica right after a certain line. In each round, this line is a later one. If the command then fails, the
// test repeats the command. The command must succeed at the latest when the replica runs again. No node may become
// NotReady, no leader may lose its lock, and no lock may have two holders.
//
//	E2E_TAKEOVER_REPLICA_KILLS  N: a replica is killed at every N-th line of each command; 0 or nothing skips the test
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
		if kills == 0 {
			return errors.New("no replica was killed: both commands ended too early")
		}
		return nil
	})
}

// TestTakeoverReplicaKilled kills a replica right before a rollback, and starts it again only afterwards. The rollback
// must succeed at the first attempt. It must not wait for the dead replica while writes are stopped.
//
//	E2E_RESTART_REPLICA  command, see TestTakeoverReplicas
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
				return fmt.Errorf("the rollback does not print for how long nobody could write")
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

// loseReplicas runs `lose` with a scene and the Leases of the set "fixed". Afterwards all informers must have the
// current state, and no client may have noticed a failure.
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

// loseReplica runs a command, and kills a replica right after line number `count`. A failed command is repeated, first
// without the replica, and then with the replica started again. loseReplica returns whether the command printed this
// line.
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
	hasSucceeded := failed == nil
	var without error
	if failed != nil {
		s.t.Log(failed)
		hasSucceeded, without = s.withoutReplica(ctx, variable, replica)
	}
	// Later tests need the replica, even if this test fails.
	if last != "" {
		if err := command(ctx, os.Getenv("E2E_RESTART_REPLICA")+" "+replica+" KILL"); err != nil {
			return false, errors.Join(without, err)
		}
	}
	if without != nil {
		return false, without
	}
	if !hasSucceeded {
		if _, _, err := s.succeed(ctx, variable); err != nil {
			return false, err
		}
	}
	return last != "", s.complaint()
}

// withoutReplica repeats a failed command while a replica is dead, and returns whether the command has succeeded. A
// takeover that has not begun its switch may fail, since it requires an answer of every replica. But a switch that has
// begun must not need the dead replica: the command must complete the switch or undo it, within attemptsMax attempts.
func (s *scene) withoutReplica(ctx context.Context, variable, replica string) (bool, error) {
	var failed error
	for attempt := range attemptsMax {
		time.Sleep(afterFailure)
		if failed = command(ctx, os.Getenv(variable)); failed == nil {
			s.t.Logf("%s without %s succeeded at attempt %d", variable, replica, attempt+1)
			return true, nil
		}
		s.t.Logf("%s without %s, attempt %d: %v", variable, replica, attempt+1, failed)
		if isHalfDone, err := s.isHalfDone(ctx, variable); err != nil || !isHalfDone {
			return false, err
		}
	}
	return false, fmt.Errorf("%s has begun its switch, and does not complete it without %s: %w", variable, replica, failed)
}

// isHalfDone returns whether a failed command has begun a switch without completing or undoing it. A takeover begins
// its switch when the APIService names our Service. A rollback begins its switch when it stops all writes, in the phase
// `freeze`. When the APIService names no Service any more, a failed rollback has not completed its switch.
func (s *scene) isHalfDone(ctx context.Context, variable string) (bool, error) {
	service, err := (kubectl{s.space}).run(ctx, "", "get", "apiservice", apiServiceName, "-o", servicePath)
	if err != nil || variable == "E2E_TAKEOVER" {
		return service != "", err
	}
	if service == "" {
		return true, nil
	}
	var phase string
	err = eventually(ctx, handoverReadMax, func(ctx context.Context) error {
		held, err := clientset(direct("admin")).CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, handoverLease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		phase = held.Annotations["coordination-apiserver/phase"]
		return nil
	})
	return phase == "freeze", err
}
