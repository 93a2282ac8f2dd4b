// Command informers runs informers of Leases. It is compiled with several versions of client-go. go.mod pins the newest
// version, and the other .mod files pin older ones (go build -modfile).
//
// For each server, each media type and each version of HTTP, the program runs one informer. After each event, it writes
// the content of all informers as one line of JSON to standard output. This JSON maps each informer to its Leases, and
// the name of each Lease to its holder and renewTime. The program ends when its standard input ends.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

var (
	mediaTypes = map[string]string{"json": runtime.ContentTypeJSON, "protobuf": runtime.ContentTypeProtobuf}
	protocols  = []string{"http/1.1", "h2"}
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the user")
	servers := flag.String("servers", "", "URLs of the servers, separated by commas")
	namespace := flag.String("namespace", "", "namespace of the Leases")
	selector := flag.String("selector", "", "label selector of the Leases")
	flag.Parse()
	if err := run(*kubeconfig, strings.Split(*servers, ","), *namespace, *selector); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig string, servers []string, namespace, selector string) error {
	informers := map[string]cache.SharedIndexInformer{}
	for _, server := range servers {
		for name, mediaType := range mediaTypes {
			for _, protocol := range protocols {
				config, err := clientcmd.BuildConfigFromFlags(server, kubeconfig)
				if err != nil {
					return err
				}
				config.ContentType, config.AcceptContentTypes = mediaType, mediaType
				config.NextProtos = []string{protocol}
				client, err := leases(config)
				if err != nil {
					return err
				}
				source := cache.NewFilteredListWatchFromClient(client, "leases", namespace, func(options *metav1.ListOptions) {
					options.LabelSelector = selector
				})
				informers[fmt.Sprint(server, " ", name, " ", protocol)] =
					cache.NewSharedIndexInformer(source, &coordinationv1.Lease{}, 0, cache.Indexers{})
			}
		}
	}
	var mutex sync.Mutex
	show := func(any) {
		mutex.Lock()
		defer mutex.Unlock()
		_ = json.NewEncoder(os.Stdout).Encode(contents(informers))
	}
	for _, informer := range informers {
		handler := cache.ResourceEventHandlerFuncs{
			AddFunc: show, UpdateFunc: func(_, changed any) { show(changed) }, DeleteFunc: show,
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
		go informer.Run(context.Background().Done())
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// leases returns a client for the API group of Leases. Its scheme has no other types, which keeps the program small.
func leases(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config.GroupVersion, config.APIPath = &coordinationv1.SchemeGroupVersion, "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}

func contents(informers map[string]cache.SharedIndexInformer) map[string]map[string]string {
	all := map[string]map[string]string{}
	for name, informer := range informers {
		all[name] = map[string]string{}
		for _, object := range informer.GetStore().List() {
			held := object.(*coordinationv1.Lease)
			all[name][held.Name] = fmt.Sprint(*held.Spec.HolderIdentity, " ", held.Spec.RenewTime.UTC())
		}
	}
	return all
}
