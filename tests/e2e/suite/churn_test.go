package suite

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"
)

const (
	// Time without a change after which a lock has expired. A worker measures it with its own clock, as client-go does.
	lockExpires = 2 * time.Second
	// Maximum time of an acquisition. After a longer one, the worker does not act as the holder.
	acquiredMax = time.Second
)

// churn is a set of workers that create, acquire, release, abandon and delete locks as fast as the servers allow. Each
// request goes to a random server. churn records the holder of each lock, and so notices a second holder.
type churn struct {
	servers []coordinationclient.LeaseInterface
	// Factor by which the pauses of each worker are lengthened. The factor grows with the number of locks, so that more
	// locks do not cause more load.
	patience int

	mutex        sync.Mutex
	holders      map[string]string
	acquisitions int
	expired      int
	answers      map[string]int
	violations   []string
}

// observed is the last state of a lock that a worker saw. since is the time at which the worker first saw this state.
type observed struct {
	version string
	since   time.Time
}

func newChurn(servers []coordinationclient.LeaseInterface, patience int) *churn {
	return &churn{servers: servers, patience: patience, holders: map[string]string{}, answers: map[string]int{}}
}

func (c *churn) server() coordinationclient.LeaseInterface {
	return c.servers[rand.IntN(len(c.servers))]
}

// run lets a worker compete for a lock until the context ends.
func (c *churn) run(ctx context.Context, lock, worker string) {
	var last observed
	for ctx.Err() == nil {
		began := time.Now()
		held := c.acquire(ctx, lock, worker, &last)
		if held == nil || time.Since(began) > acquiredMax {
			c.pause()
			continue
		}
		c.mutex.Lock()
		if other := c.holders[lock]; other != "" {
			c.violations = append(c.violations, fmt.Sprintf("%s: %s acquired %s, which %s holds", time.Now().Format(time.TimeOnly), worker, lock, other))
		}
		c.holders[lock] = worker
		c.acquisitions++
		c.mutex.Unlock()
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
		// As soon as the worker sends a release, another worker may hold the lock. So the worker first clears the
		// record of the holder.
		c.mutex.Lock()
		c.holders[lock] = ""
		c.mutex.Unlock()
		if rand.IntN(50) > 0 {
			c.release(ctx, held)
		} else {
			// The worker abandons the lock. The lock expires, and another worker acquires it.
			time.Sleep(2 * lockExpires)
		}
		time.Sleep(time.Duration((c.patience-1)*rand.IntN(100)) * time.Millisecond)
	}
}

// pause is the pause of a worker before its next attempt.
func (c *churn) pause() {
	time.Sleep(time.Duration(c.patience*(30+rand.IntN(70))) * time.Millisecond)
}

// acquire tries to acquire a lock. It returns the acquired lock, or nil. `last` is the state of the lock that the
// worker has observed, and is updated.
func (c *churn) acquire(ctx context.Context, lock, worker string, last *observed) *coordinationv1.Lease {
	found, err := c.server().Get(ctx, lock, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return c.written(c.server().Create(ctx, lease(lock, worker), metav1.CreateOptions{}))
	}
	if err != nil {
		c.count(err)
		return nil
	}
	if found.ResourceVersion != last.version {
		*last = observed{found.ResourceVersion, time.Now()}
	}
	switch holder := *found.Spec.HolderIdentity; {
	case holder == "":
	case holder == worker:
		// The worker is the holder already: it got no answer to an acquisition that took effect, or it has abandoned
		// the lock. So it acquires the lock again.
	case time.Since(last.since) > lockExpires:
		c.mutex.Lock()
		c.expired++
		c.mutex.Unlock()
	default:
		return nil
	}
	found.Spec.HolderIdentity, found.Spec.RenewTime = ptr.To(worker), ptr.To(metav1.NowMicro())
	return c.written(c.server().Update(ctx, found, metav1.UpdateOptions{}))
}

// written counts the answer to a write, and returns the lock if the write succeeded. A write without an answer may take
// effect too. Then the worker later finds itself as the holder.
func (c *churn) written(written *coordinationv1.Lease, err error) *coordinationv1.Lease {
	c.count(err)
	if err != nil {
		return nil
	}
	return written
}

func (c *churn) release(ctx context.Context, held *coordinationv1.Lease) {
	worker := *held.Spec.HolderIdentity
	for ctx.Err() == nil {
		held.Spec.HolderIdentity = ptr.To("")
		released, err := c.server().Update(ctx, held, metav1.UpdateOptions{})
		c.count(err)
		if err == nil {
			if rand.IntN(10) == 0 {
				unchanged := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &released.ResourceVersion}}
				c.count(c.server().Delete(ctx, released.Name, unchanged))
			}
			return
		}
		found, err := c.server().Get(ctx, held.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && *found.Spec.HolderIdentity != worker {
			return
		}
		if err == nil {
			held = found
		} else {
			held.Spec.HolderIdentity = ptr.To(worker)
		}
		// A denial by an admission policy has no Retry-After, for which client-go would wait. So the worker itself
		// waits.
		c.pause()
	}
}

func (c *churn) count(err error) {
	name := "OK"
	if err != nil {
		name = string(apierrors.ReasonForError(err))
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.answers[name]++
}

// outcome returns a summary, or an error with the first violations.
func (c *churn) outcome() (string, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if len(c.violations) > 0 {
		return "", fmt.Errorf("locks had two holders, %d times: %s", len(c.violations), strings.Join(c.violations[:min(5, len(c.violations))], "; "))
	}
	var answers []string
	for _, name := range slices.Sorted(maps.Keys(c.answers)) {
		answers = append(answers, fmt.Sprintf("%s %d", name, c.answers[name]))
	}
	return fmt.Sprintf("%d acquisitions, %d attempts to acquire expired locks; number of answers: %s", c.acquisitions, c.expired,
		strings.Join(answers, ", ")), nil
}
