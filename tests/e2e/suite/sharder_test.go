package suite

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// shardState is the state of a shard according to its Lease.
type shardState string

const (
	// shardReady means that the shard holds its Lease.
	shardReady shardState = "ready"
	// shardExpired means that the Lease expired less than its duration ago.
	shardExpired shardState = "expired"
	// shardUncertain means that the Lease expired at least its duration ago. The sharder tries to acquire the Lease.
	shardUncertain shardState = "uncertain"
	// shardDead means that the shard released its Lease, or that the sharder holds the Lease.
	shardDead shardState = "dead"
	// shardOrphaned means that the Lease of a dead shard expired orphanedAfter ago. The sharder deletes the Lease.
	shardOrphaned shardState = "orphaned"
	// shardGone means that there is no Lease.
	shardGone shardState = "gone"
)

const (
	sharderIdentity = "sharder"
	sharderLooks    = 100 * time.Millisecond
	sharderPatience = 3 * time.Second
	// Time from the expiry of a dead shard's Lease until the shard is orphaned. Real sharders use a minute.
	orphanedAfter = 5 * time.Second
	ringPoints    = 100
)

// stateOf returns the state of the shard with this Lease.
func stateOf(held *coordinationv1.Lease, now time.Time) shardState {
	duration := time.Duration(*held.Spec.LeaseDurationSeconds) * time.Second
	over := now.Sub(held.Spec.RenewTime.Add(duration))
	switch mine := ptr.Deref(held.Spec.HolderIdentity, "") == held.Name; {
	case !mine && over >= orphanedAfter:
		return shardOrphaned
	case !mine:
		return shardDead
	case over >= duration:
		return shardUncertain
	case over >= 0:
		return shardExpired
	}
	return shardReady
}

// available returns whether the shard keeps its objects.
func (s shardState) available() bool {
	return s == shardReady || s == shardExpired || s == shardUncertain
}

// move is the move of an object from one shard to another.
type move struct {
	object, from, to string
	// drained is whether the former shard was available, and so had to release the object.
	drained bool
	state   shardState
	at      time.Time
}

// sharder distributes objects among shards, as a sharder of Kubernetes controllers does. A shard that works renews its
// Lease. The Leases of all shards are in one namespace, and the sharder watches them with an informer.
type sharder struct {
	leases   coordinationclient.LeaseInterface
	informer cache.SharedIndexInformer
	changed  chan struct{}
	mutex    sync.Mutex
	owners   map[string]string
	moves    []move
	history  map[string][]shardState
	// conflicts is the number of acquisitions that got 409, because a renewal had not reached the informer yet.
	conflicts int
}

// newSharder assigns each object to one of the existing shards, and then follows their Leases.
func newSharder(ctx context.Context, client kubernetes.Interface, namespace string, objects []string) (*sharder, error) {
	s := &sharder{
		leases:   client.CoordinationV1().Leases(namespace),
		informer: leaseInformer(client, namespace),
		changed:  make(chan struct{}, 1),
		owners:   make(map[string]string),
		history:  make(map[string][]shardState),
	}
	for _, object := range objects {
		s.owners[object] = ""
	}
	if _, err := start(ctx, s.informer); err != nil {
		return nil, err
	}
	wake := func(any) {
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
	if _, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: wake, UpdateFunc: func(_, held any) { wake(held) }, DeleteFunc: wake,
	}); err != nil {
		return nil, err
	}
	s.look(ctx)
	go func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-s.changed:
			case <-time.After(sharderLooks):
			}
			s.look(ctx)
		}
	}()
	return s, nil
}

// look acts on the states of the Leases and distributes the objects. The next call repeats failed actions.
func (s *sharder) look(ctx context.Context) {
	states := make(map[string]shardState)
	for _, object := range s.informer.GetStore().List() {
		held := object.(*coordinationv1.Lease)
		states[held.Name] = stateOf(held, time.Now())
		switch states[held.Name] {
		case shardUncertain:
			if apierrors.IsConflict(s.acquire(ctx, held)) {
				s.mutex.Lock()
				s.conflicts++
				s.mutex.Unlock()
			}
		case shardOrphaned:
			_ = s.leases.Delete(ctx, held.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &held.UID, ResourceVersion: &held.ResourceVersion},
			})
		}
	}
	s.share(states)
}

// acquire acquires the Lease of a shard for the sharder. It gets 409 if the Lease has changed since the state `held`.
func (s *sharder) acquire(ctx context.Context, held *coordinationv1.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, sharderPatience)
	defer cancel()
	held = held.DeepCopy()
	held.Spec.HolderIdentity = ptr.To(sharderIdentity)
	held.Spec.AcquireTime = ptr.To(metav1.NowMicro())
	held.Spec.RenewTime = held.Spec.AcquireTime
	held.Spec.LeaseTransitions = ptr.To(ptr.Deref(held.Spec.LeaseTransitions, 0) + 1)
	_, err := s.leases.Update(ctx, held, metav1.UpdateOptions{})
	return err
}

func (s *sharder) share(states map[string]shardState) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for shard := range s.history {
		if _, is := states[shard]; !is {
			s.see(shard, shardGone)
		}
	}
	var shards []string
	for shard, state := range states {
		s.see(shard, state)
		if state.available() {
			shards = append(shards, shard)
		}
	}
	if len(shards) == 0 {
		return
	}
	ring := newRing(shards)
	for object, from := range s.owners {
		to := ring.owner(object)
		if from != "" && from != to {
			s.moves = append(s.moves, move{object, from, to, states[from].available(), states[to], time.Now()})
		}
		s.owners[object] = to
	}
}

func (s *sharder) see(shard string, state shardState) {
	if seen := s.history[shard]; len(seen) == 0 || seen[len(seen)-1] != state {
		s.history[shard] = append(seen, state)
	}
}

// is returns a check that a shard is in this state.
func (s *sharder) is(shard string, state shardState) func(context.Context) error {
	return func(context.Context) error {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if seen := s.history[shard]; len(seen) == 0 || seen[len(seen)-1] != state {
			return fmt.Errorf("%s is not %s: %v", shard, state, seen)
		}
		return nil
	}
}

// objects returns the objects of each shard.
func (s *sharder) objects() map[string][]string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	of := make(map[string][]string)
	for _, object := range slices.Sorted(maps.Keys(s.owners)) {
		of[s.owners[object]] = append(of[s.owners[object]], object)
	}
	return of
}

// moved returns the moves since the last call.
func (s *sharder) moved() []move {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	moves := s.moves
	s.moves = nil
	return moves
}

// ring is a consistent hash ring, with many points for each shard.
type ring []ringPoint

type ringPoint struct {
	at    uint64
	shard string
}

func newRing(shards []string) (r ring) {
	for _, shard := range shards {
		for number := range ringPoints {
			r = append(r, ringPoint{place(fmt.Sprint(shard, "/", number)), shard})
		}
	}
	slices.SortFunc(r, func(a, b ringPoint) int { return cmp.Compare(a.at, b.at) })
	return r
}

// owner returns the shard that has the next point on the ring after the hash of the object.
func (r ring) owner(object string) string {
	next, _ := slices.BinarySearchFunc(r, place(object), func(p ringPoint, at uint64) int { return cmp.Compare(p.at, at) })
	return r[next%len(r)].shard
}

func place(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.BigEndian.Uint64(sum[:])
}
