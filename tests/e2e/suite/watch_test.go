package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

const (
	watches = 200
	writes  = 50
)

// TestManyWatches opens 200 watches at once through kube-apiserver. Each watch must get each write once and in order.
func TestManyWatches(t *testing.T) {
	eachContentType(t, 60*time.Second, func(ctx context.Context, t *testing.T, config *rest.Config) error {
		leases := clientset(config).CoordinationV1().Leases(namespace(t))
		object, err := leases.Create(ctx, lease("watched", "0"), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		var open []watch.Interface
		defer func() {
			for _, w := range open {
				w.Stop()
			}
		}()
		for range watches {
			w, err := leases.Watch(ctx, metav1.ListOptions{ResourceVersion: object.ResourceVersion})
			if err != nil {
				return fmt.Errorf("watch %d: %w", len(open), err)
			}
			open = append(open, w)
		}
		var versions []string
		for range writes {
			object.Spec.RenewTime.Time = time.Now()
			if object, err = leases.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
				return err
			}
			versions = append(versions, object.ResourceVersion)
		}
		for i, w := range open {
			for n, version := range versions {
				select {
				case event, more := <-w.ResultChan():
					seen, ok := event.Object.(*coordinationv1.Lease)
					if !more || !ok || event.Type != watch.Modified || seen.ResourceVersion != version {
						return fmt.Errorf("watch %d, event %d: want version %s, got %s %v", i, n, version, event.Type, event.Object)
					}
				case <-ctx.Done():
					return fmt.Errorf("watch %d waits for event %d: %w", i, n, ctx.Err())
				}
			}
		}
		return nil
	})
}
