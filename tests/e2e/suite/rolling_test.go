package suite

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	rollingNodes  = 20
	rollingPeriod = 500 * time.Millisecond
	rollingRounds = 2
	// Pause before the first restart of a replica, and after each restart.
	betweenStops = 5 * time.Second
	// Maximum time until an informer has the current state.
	informerWithin = 20 * time.Second
)

// TestRollingRestart stops replicas with SIGTERM and restarts them, one after the other, behind two kube-apiservers. No
// renewal may fail, and no informer may list a second time.
//
//	E2E_SECOND   URL of the second kube-apiserver
//	E2E_ROLLING  commands that stop and start a replica, separated by commas
func TestRollingRestart(t *testing.T) {
	if os.Getenv("E2E_ROLLING") == "" {
		t.Skip("tests/e2e/run runs this test over etcd, after the suite")
	}
	second := user("admin")
	second.Host = os.Getenv("E2E_SECOND")
	configs := []*rest.Config{user("admin"), second}
	check(t, 3*time.Minute, func(ctx context.Context) error {
		space := namespace(t)
		var lists [2]atomic.Int32
		told := make([]*mirror, len(configs))
		watching := make([]cache.SharedIndexInformer, len(configs))
		for number, config := range configs {
			watched := rest.CopyConfig(config)
			watched.Wrap(func(next http.RoundTripper) http.RoundTripper { return countLists{next, &lists[number]} })
			watching[number] = leaseInformer(clientset(watched), space)
			var err error
			if told[number], err = start(ctx, watching[number]); err != nil {
				return err
			}
		}

		failed := make(chan error, rollingNodes)
		var renewals atomic.Int32
		renewing, stop := context.WithCancel(ctx)
		defer stop()
		var nodes sync.WaitGroup
		for number := range rollingNodes {
			nodes.Go(func() {
				leases := clientset(configs[number%2]).CoordinationV1().Leases(space)
				held, err := leases.Create(ctx, lease(fmt.Sprintf("node-%d", number), "kubelet"), metav1.CreateOptions{})
				for err == nil && renewing.Err() == nil {
					time.Sleep(rollingPeriod)
					held.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
					held, err = leases.Update(ctx, held, metav1.UpdateOptions{})
					renewals.Add(1)
				}
				if err != nil {
					failed <- fmt.Errorf("node-%d at %s: %w%s", number, time.Now().Format("15:04:05.000"), err, causes(err))
				}
			})
		}
		time.Sleep(betweenStops)
		for range rollingRounds {
			for _, restart := range strings.Split(os.Getenv("E2E_ROLLING"), ",") {
				if err := command(ctx, restart); err != nil {
					return err
				}
				time.Sleep(betweenStops)
			}
		}
		stop()
		nodes.Wait()
		select {
		case err := <-failed:
			return fmt.Errorf("a renewal failed: %w", err)
		default:
		}
		for number := range told {
			agrees := told[number].agrees(admin(), space, watching[number], "node-0")
			if err := eventually(ctx, informerWithin, agrees); err != nil {
				return fmt.Errorf("informer %d: %w", number, err)
			}
			if count := lists[number].Load(); count != 1 {
				return fmt.Errorf("informer %d listed %d times", number, count)
			}
		}
		t.Logf("%d renewals, none failed; the informers listed once", renewals.Load())
		return nil
	})
}

// causes returns the causes in the Status of an error. If the response was not a Status, client-go makes its text a
// cause.
func causes(err error) (text string) {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			text += ": " + cause.Message
		}
	}
	return text
}

// countLists counts requests for lists, and for watches with initial events.
type countLists struct {
	next  http.RoundTripper
	count *atomic.Int32
}

func (c countLists) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	if !query.Has("watch") || query.Get("sendInitialEvents") == "true" {
		c.count.Add(1)
	}
	return c.next.RoundTrip(request)
}
