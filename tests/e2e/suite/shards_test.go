package suite

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	sharedObjects = 100
	// Minimum and maximum number of a shard's objects. On average a shard has a third or a quarter of all objects, but
	// the hash ring is not even.
	partMin = 10
	partMax = 50
	// Maximum time of a change that need not wait for a Lease to expire. It is less than the duration of a Lease, and
	// more than the time of a request on a busy machine.
	atOnce = 4 * time.Second
	// Maximum time until the sharder receives changes after a restart. client-go waits up to 30 s before it watches
	// again.
	awakeWithin = 40 * time.Second
)

var shardPace = pace{5 * time.Second, 4 * time.Second, 250 * time.Millisecond}

// shards is a sharder and the shards that share its objects. Each shard holds the Lease of its own name.
type shards struct {
	*sharder
	configs []*rest.Config
	space   string
	release bool
	running map[string]*candidate
	// UID of each shard's first Lease.
	uids map[string]types.UID
}

// newShards starts a sharder with three shards. If release is true, a shard releases its Lease when it ends.
func newShards(ctx context.Context, t *testing.T, configs []*rest.Config, release bool) (*shards, error) {
	s := &shards{configs: configs, space: namespace(t), release: release, running: make(map[string]*candidate), uids: make(map[string]types.UID)}
	for number := range 3 {
		if err := s.begin(ctx, fmt.Sprint("shard-", number)); err != nil {
			return nil, err
		}
	}
	objects := make([]string, sharedObjects)
	for number := range objects {
		objects[number] = fmt.Sprintf("object-%02d", number)
	}
	var err error
	if s.sharder, err = newSharder(ctx, s.client(), s.space, objects); err != nil {
		return nil, err
	}
	for shard := range s.running {
		if part := len(s.objects()[shard]); part < partMin || part > partMax {
			return nil, fmt.Errorf("%s has %d objects", shard, part)
		}
	}
	return s, nil
}

// bothTypes returns the configurations of two clients, one with each media type.
func bothTypes() []*rest.Config {
	return []*rest.Config{speaking(user("admin"), contentTypes["protobuf"]), speaking(user("admin"), contentTypes["json"])}
}

func (s *shards) client() kubernetes.Interface { return clientset(s.configs[0]) }

// begin starts a shard and waits until it holds its Lease.
func (s *shards) begin(ctx context.Context, shard string) error {
	config := s.configs[len(s.running)%len(s.configs)]
	c, err := standFor(ctx, config, s.space, shard, shard, shardPace, s.release)
	if err != nil {
		return err
	}
	s.running[shard] = c
	if err := eventually(ctx, 20*time.Second, leads(c, true)); err != nil {
		return err
	}
	held, err := s.client().CoordinationV1().Leases(s.space).Get(ctx, shard, metav1.GetOptions{})
	if _, is := s.uids[shard]; err == nil && !is {
		s.uids[shard] = held.UID
	}
	return err
}

// leave ends a shard, which releases its Lease. It returns the time at which the end began.
func (s *shards) leave(ctx context.Context, shard string) (time.Time, error) {
	if err := awaitRenewal(ctx, s.client().CoordinationV1().Leases(s.space), shard); err != nil {
		return time.Time{}, err
	}
	left := time.Now()
	s.running[shard].end()
	delete(s.running, shard)
	return left, nil
}

// drained waits until a shard has no objects, and returns the moves. Only objects of this shard may have moved, each to
// a ready shard.
func (s *shards) drained(ctx context.Context, shard string, before map[string][]string, within time.Duration) ([]move, error) {
	if err := eventually(ctx, within, func(context.Context) error {
		if left := s.objects()[shard]; len(left) > 0 {
			return fmt.Errorf("%s has %d objects", shard, len(left))
		}
		return nil
	}); err != nil {
		return nil, err
	}
	moves := s.moved()
	var objects []string
	for _, move := range moves {
		if move.from != shard || move.drained || s.running[move.to] == nil || move.state != shardReady {
			return nil, fmt.Errorf("%s leaves, but this move is wrong: %+v", shard, move)
		}
		objects = append(objects, move.object)
	}
	slices.Sort(objects)
	if !slices.Equal(objects, before[shard]) {
		return nil, fmt.Errorf("%s had %v, but these objects moved: %v", shard, before[shard], objects)
	}
	return moves, nil
}

// still checks that no object has moved, and that each shard has kept its Lease.
func (s *shards) still(ctx context.Context) error {
	if moves := s.moved(); len(moves) > 0 {
		return fmt.Errorf("%d objects moved, the first one: %+v", len(moves), moves[0])
	}
	for shard, c := range s.running {
		if !c.leads.Load() {
			return fmt.Errorf("%s has lost its Lease", shard)
		}
		held, err := s.client().CoordinationV1().Leases(s.space).Get(ctx, shard, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if held.UID != s.uids[shard] || *held.Spec.HolderIdentity != shard || *held.Spec.LeaseTransitions != 0 {
			return fmt.Errorf("the Lease of %s has the spec %v, and the UID %s instead of %s", shard, held.Spec, held.UID, s.uids[shard])
		}
	}
	return nil
}

// TestShards starts a fourth shard, and then ends two shards. Objects may move only to the new shard, and from a shard
// that ends.
func TestShards(t *testing.T) {
	t.Parallel()
	check(t, 80*time.Second, func(ctx context.Context) error {
		s, err := newShards(ctx, t, bothTypes(), true)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := s.begin(ctx, "shard-3"); err != nil {
			return err
		}
		if err := eventually(ctx, atOnce, s.is("shard-3", shardReady)); err != nil {
			return err
		}
		moves := s.moved()
		for _, move := range moves {
			if move.to != "shard-3" || !move.drained || move.state != shardReady {
				return fmt.Errorf("shard-3 joins, but this move is wrong: %+v", move)
			}
		}
		if len(moves) < partMin || len(moves) > partMax {
			return fmt.Errorf("%d objects moved to shard-3", len(moves))
		}
		t.Logf("%d of %d objects moved to a fourth shard within %s", len(moves), sharedObjects, time.Since(began).Round(time.Millisecond))
		for _, shard := range []string{"shard-0", "shard-3"} {
			before := s.objects()
			left, err := s.leave(ctx, shard)
			if err != nil {
				return err
			}
			moves, err := s.drained(ctx, shard, before, atOnce)
			if err != nil {
				return err
			}
			t.Logf("%s left: %d objects moved within %s", shard, len(moves), moves[len(moves)-1].at.Sub(left).Round(time.Millisecond))
		}
		// client-go gives a released Lease a duration of 1 s.
		for _, shard := range []string{"shard-0", "shard-3"} {
			if err := eventually(ctx, time.Second+orphanedAfter+atOnce, s.is(shard, shardGone)); err != nil {
				return err
			}
		}
		return s.still(ctx)
	})
}

// TestShardExpires stops a shard without a release of its Lease. The shard keeps its objects if it returns before the
// sharder may acquire the Lease. Otherwise it loses them as soon as the sharder may do so.
func TestShardExpires(t *testing.T) {
	t.Parallel()
	check(t, 100*time.Second, func(ctx context.Context) error {
		s, err := newShards(ctx, t, bothTypes(), false)
		if err != nil {
			return err
		}
		leases, shard := s.client().CoordinationV1().Leases(s.space), "shard-1"
		seen, err := leases.Get(ctx, shard, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := awaitRenewal(ctx, leases, shard); err != nil {
			return err
		}
		if err := s.acquire(ctx, seen); !apierrors.IsConflict(err) {
			return fmt.Errorf("the sharder acquired a Lease that had been renewed: %v", err)
		}
		s.running[shard].end()
		if err := eventually(ctx, shardPace.duration+atOnce, s.is(shard, shardExpired)); err != nil {
			return err
		}
		if err := s.begin(ctx, shard); err != nil {
			return err
		}
		if err := eventually(ctx, atOnce, s.is(shard, shardReady)); err != nil {
			return err
		}
		if err := s.still(ctx); err != nil {
			return err
		}

		before := s.objects()
		s.running[shard].end()
		delete(s.running, shard)
		last, err := leases.Get(ctx, shard, metav1.GetOptions{})
		if err != nil {
			return err
		}
		due := last.Spec.RenewTime.Add(2 * shardPace.duration)
		moves, err := s.drained(ctx, shard, before, time.Until(due)+atOnce)
		if err != nil {
			return err
		}
		if early := due.Sub(moves[0].at); early > 0 {
			return fmt.Errorf("the Lease of %s was acquired %s too early", shard, early)
		}
		taken, err := leases.Get(ctx, shard, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if *taken.Spec.HolderIdentity != sharderIdentity || taken.Spec.AcquireTime.Time.Before(due) {
			return fmt.Errorf("the sharder may acquire the Lease of %s at %s, but the spec is %v", shard, due, taken.Spec)
		}
		t.Logf("%d objects moved, the last one %s after the sharder was allowed to acquire the Lease", len(moves), moves[len(moves)-1].at.Sub(due).Round(time.Millisecond))

		if err := eventually(ctx, shardPace.duration+orphanedAfter+atOnce, s.is(shard, shardGone)); err != nil {
			return err
		}
		s.mutex.Lock()
		history := s.history[shard]
		s.mutex.Unlock()
		want := []shardState{shardReady, shardExpired, shardReady, shardExpired, shardUncertain, shardDead, shardOrphaned, shardGone}
		if !slices.Equal(history, want) {
			return fmt.Errorf("%s had the states %v", shard, history)
		}
		return s.still(ctx)
	})
}

// TestShardsRestart kills and restarts the process that serves the Leases, or one of its replicas. No shard may lose an
// object.
func TestShardsRestart(t *testing.T) {
	if builtin() {
		t.Skip("kube-apiserver takes longer to start than these Leases last")
	}
	if os.Getenv("E2E_STORAGE") == "memory" {
		t.Skip("storage in memory loses the Leases at a restart")
	}
	stillThrough(t, bothTypes(), os.Getenv("E2E_RESTART"), os.Getenv("E2E_RESTART"))
}

// TestShardsReplicas is like TestShardsRestart, but with two kube-apiservers. Each replica is restarted with SIGKILL,
// and also with SIGTERM.
//
//	E2E_SECOND                  URL of the second kube-apiserver
//	E2E_REPLICAS, E2E_ROLLING   commands that restart a replica with SIGKILL or with SIGTERM, separated by commas
func TestShardsReplicas(t *testing.T) {
	if os.Getenv("E2E_REPLICAS") == "" {
		t.Skip("tests/e2e/run runs this test over etcd, after the suite")
	}
	configs := bothTypes()
	configs[1].Host = os.Getenv("E2E_SECOND")
	commands := strings.Split(os.Getenv("E2E_REPLICAS"), ",")
	if rolling := os.Getenv("E2E_ROLLING"); rolling != "" {
		commands = append(commands, strings.Split(rolling, ",")...)
	}
	stillThrough(t, configs, commands...)
}

// stillThrough checks that no object moves during restarts, and that the sharder works afterwards.
func stillThrough(t *testing.T, configs []*rest.Config, restarts ...string) {
	check(t, 3*time.Minute, func(ctx context.Context) error {
		s, err := newShards(ctx, t, configs, true)
		if err != nil {
			return err
		}
		for _, restart := range restarts {
			began := time.Now()
			if err := command(ctx, restart); err != nil {
				return err
			}
			t.Logf("%s took %s", restart, time.Since(began).Round(time.Millisecond))
			// A shard that cannot renew its Lease stops within this time.
			time.Sleep(shardPace.duration)
			if err := s.still(ctx); err != nil {
				return err
			}
		}
		time.Sleep(shardPace.duration)
		if err := s.still(ctx); err != nil {
			return err
		}
		s.mutex.Lock()
		t.Logf("%d acquisitions got 409, since the shard had renewed its Lease; states of the shards: %v", s.conflicts, s.history)
		s.mutex.Unlock()

		before := s.objects()
		left, err := s.leave(ctx, "shard-2")
		if err != nil {
			return err
		}
		moves, err := s.drained(ctx, "shard-2", before, awakeWithin)
		if err != nil {
			return err
		}
		t.Logf("no object moved in %d restarts; then shard-2 left, and %d moved within %s", len(restarts), len(moves),
			moves[len(moves)-1].at.Sub(left).Round(time.Millisecond))
		return nil
	})
}
