package suite

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// mirror has the names and resourceVersions of the objects in an informer, according to the informer's events.
type mirror struct {
	mutex    sync.Mutex
	versions map[string]string
}

func (m *mirror) handler() cache.ResourceEventHandler {
	put := func(object any) {
		if object, err := meta.Accessor(object); err == nil {
			m.mutex.Lock()
			defer m.mutex.Unlock()
			m.versions[object.GetName()] = object.GetResourceVersion()
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    put,
		UpdateFunc: func(_, object any) { put(object) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if object, err := meta.Accessor(object); err == nil {
				m.mutex.Lock()
				defer m.mutex.Unlock()
				delete(m.versions, object.GetName())
			}
		},
	}
}

func (m *mirror) snapshot() map[string]string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return maps.Clone(m.versions)
}

// agrees returns a check that the mirror and the informer's store equal a list from the server. The list must have the
// wanted names.
func (m *mirror) agrees(client kubernetes.Interface, namespace string, informer cache.SharedInformer, wanted ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := client.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		listed := make(map[string]string)
		for _, item := range list.Items {
			listed[item.Name] = item.ResourceVersion
		}
		for _, name := range wanted {
			if listed[name] == "" {
				return fmt.Errorf("%s is not in the list %v", name, listed)
			}
		}
		if told := m.snapshot(); !maps.Equal(told, listed) {
			return fmt.Errorf("the list has %v, the events gave %v", listed, told)
		}
		stored := make(map[string]string)
		for _, object := range informer.GetStore().List() {
			if object, err := meta.Accessor(object); err == nil {
				stored[object.GetName()] = object.GetResourceVersion()
			}
		}
		if !maps.Equal(stored, listed) {
			return fmt.Errorf("the list has %v, the informer's store has %v", listed, stored)
		}
		return nil
	}
}

// start starts an informer with a mirror, and waits until the informer has synced.
func start(ctx context.Context, informer cache.SharedIndexInformer) (*mirror, error) {
	told := &mirror{versions: make(map[string]string)}
	if _, err := informer.AddEventHandler(told.handler()); err != nil {
		return nil, err
	}
	go informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("the informer did not sync: %w", ctx.Err())
	}
	return told, nil
}

// change creates, updates and deletes Leases. It returns the names of those that remain.
func change(ctx context.Context, client kubernetes.Interface, namespace, prefix string) ([]string, error) {
	leases := client.CoordinationV1().Leases(namespace)
	var stay []string
	for i := range 4 {
		name := fmt.Sprintf("%s-%d", prefix, i)
		var made *coordinationv1.Lease
		if err := eventually(ctx, 30*time.Second, func(ctx context.Context) (err error) {
			made, err = leases.Create(ctx, lease(name, "one"), metav1.CreateOptions{})
			return err
		}); err != nil {
			return nil, err
		}
		holder := "two"
		made.Spec.HolderIdentity = &holder
		if _, err := leases.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
			return nil, err
		}
		if i == 0 {
			if err := leases.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				return nil, err
			}
			continue
		}
		stay = append(stay, name)
	}
	return stay, nil
}

func leaseInformer(client kubernetes.Interface, namespace string) cache.SharedIndexInformer {
	return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace)).
		Coordination().V1().Leases().Informer()
}

func TestInformer(t *testing.T) {
	t.Parallel()
	eachContentType(t, 40*time.Second, func(ctx context.Context, t *testing.T, config *rest.Config) error {
		client, space := clientset(config), namespace(t)
		before, err := change(ctx, client, space, "before")
		if err != nil {
			return err
		}
		informer := leaseInformer(client, space)
		told, err := start(ctx, informer)
		if err != nil {
			return err
		}
		after, err := change(ctx, client, space, "after")
		if err != nil {
			return err
		}
		return eventually(ctx, 10*time.Second, told.agrees(client, space, informer, slices.Concat(before, after)...))
	})
}

// TestInformerRestart kills the process that serves the Leases, and restarts it. Storage in memory loses the Leases,
// other storage must keep them. The informer must then receive the current state.
//
//	E2E_STORAGE   "memory" if our server has its storage in memory
func TestInformerRestart(t *testing.T) {
	eachContentType(t, 120*time.Second, func(ctx context.Context, t *testing.T, config *rest.Config) error {
		client, space := clientset(config), namespace(t)
		informer := leaseInformer(client, space)
		told, err := start(ctx, informer)
		if err != nil {
			return err
		}
		before, err := change(ctx, client, space, "before")
		if err != nil {
			return err
		}
		if err := eventually(ctx, 10*time.Second, told.agrees(client, space, informer, before...)); err != nil {
			return err
		}
		if err := restart(ctx); err != nil {
			return err
		}
		after, err := change(ctx, client, space, "after")
		if err != nil {
			return err
		}
		wanted := slices.Concat(before, after)
		if !builtin() && os.Getenv("E2E_STORAGE") == "memory" {
			wanted = after
		}
		// client-go waits up to 30 s between its attempts to list.
		return eventually(ctx, 60*time.Second, told.agrees(client, space, informer, wanted...))
	})
}

// TestMetadataInformer checks an informer of PartialObjectMetadata, as the garbage collector uses.
func TestMetadataInformer(t *testing.T) {
	t.Parallel()
	check(t, 20*time.Second, func(ctx context.Context) error {
		client, space := admin(), namespace(t)
		resource := coordinationv1.SchemeGroupVersion.WithResource("leases")
		informer := metadatainformer.NewFilteredMetadataInformer(metadata.NewForConfigOrDie(user("admin")), resource, space, 0, nil, nil).Informer()
		var trouble []string
		var mutex sync.Mutex
		_ = informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
			mutex.Lock()
			defer mutex.Unlock()
			trouble = append(trouble, err.Error())
		})
		before, err := change(ctx, client, space, "before")
		if err != nil {
			return err
		}
		told, err := start(ctx, informer)
		if err != nil {
			mutex.Lock()
			defer mutex.Unlock()
			return fmt.Errorf("%w; %s", err, strings.Join(trouble, "; "))
		}
		after, err := change(ctx, client, space, "after")
		if err != nil {
			return err
		}
		if err := eventually(ctx, 10*time.Second, told.agrees(client, space, informer, slices.Concat(before, after)...)); err != nil {
			return err
		}
		// An informer whose watches fail also reaches this state, by repeated lists. So no watch may have failed.
		mutex.Lock()
		defer mutex.Unlock()
		if len(trouble) > 0 {
			return fmt.Errorf("the watch failed: %s", strings.Join(trouble, "; "))
		}
		return nil
	})
}
