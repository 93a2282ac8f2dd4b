package suite

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"
)

const (
	// Number of concurrent requests that create or delete the further Leases (E2E_TAKEOVER_LEASES), which no client
	// renews.
	manyAtOnce = 50
	// Minimum and maximum duration of a further Lease, in seconds.
	manyShortest, manyLongest = 15, 3600
)

// beginMany creates the further Leases (E2E_TAKEOVER_LEASES), which no client renews. The duration of a switch depends
// on their number.
func (s *scene) beginMany(ctx context.Context) error {
	count := number("E2E_TAKEOVER_LEASES", 0)
	if count == 0 {
		return nil
	}
	s.manySpace, s.many = namespace(s.t), count
	began := time.Now()
	err := s.eachOfMany(func(leases coordinationclient.LeaseInterface, number int) error {
		built := lease(nameOfMany(number), fmt.Sprint("holder-", number))
		built.Spec.LeaseDurationSeconds = ptr.To(int32(manyShortest + number*(manyLongest-manyShortest)/count))
		_, err := leases.Create(ctx, built, metav1.CreateOptions{})
		return err
	})
	s.t.Logf("%d further Leases were created in %s", count, time.Since(began).Round(time.Millisecond))
	return err
}

// endMany deletes the further Leases. The deletion of their namespace would take longer.
func (s *scene) endMany() {
	if s.many == 0 {
		return
	}
	if err := s.eachOfMany(func(leases coordinationclient.LeaseInterface, number int) error {
		return leases.Delete(context.Background(), nameOfMany(number), metav1.DeleteOptions{})
	}); err != nil {
		s.t.Logf("further Leases are left: %v", err)
	}
}

func nameOfMany(number int) string { return fmt.Sprintf("many-%05d", number) }

// eachOfMany calls `do` for the number of each further Lease, with manyAtOnce calls at a time. It returns an error of
// one call, if there is any.
func (s *scene) eachOfMany(do func(leases coordinationclient.LeaseInterface, number int) error) error {
	numbers := make(chan int)
	failed := make(chan error, manyAtOnce)
	var working sync.WaitGroup
	for worker := range manyAtOnce {
		leases := clientset(s.configs[worker%len(s.configs)]).CoordinationV1().Leases(s.manySpace)
		working.Go(func() {
			var first error
			for number := range numbers {
				if err := do(leases, number); err != nil && first == nil {
					first = err
				}
			}
			failed <- first
		})
	}
	for number := range s.many {
		numbers <- number
	}
	close(numbers)
	working.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}
