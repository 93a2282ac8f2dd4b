package suite

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/cache"
)

// informersOf are informers that started at one time.
type informersOf struct {
	own cache.SharedIndexInformer
	// In other processes, with several versions of client-go.
	foreign []*foreignInformers
}

// foreignInformers are informers in another process, with one version of client-go.
type foreignInformers struct {
	name  string
	mutex sync.Mutex
	// Holder and renewTime of each Lease, by informer and by name, as the process last wrote them.
	contents map[string]map[string]string
}

// beginForeignInformers starts ../informers in each version, with and without WatchList.
//
//	E2E_INFORMERS   the programs, separated by spaces
func (s *scene) beginForeignInformers() (all []*foreignInformers, err error) {
	for _, program := range strings.Fields(os.Getenv("E2E_INFORMERS")) {
		for _, watchList := range []string{"true", "false"} {
			run := exec.CommandContext(s.alive, program, "--kubeconfig", filepath.Join(os.Getenv("E2E_STATE"), "admin.kubeconfig"),
				"--servers", s.configs[0].Host+","+s.configs[1].Host, "--namespace", s.space, "--selector", "fixed")
			run.Env = append(os.Environ(), "KUBE_FEATURE_WatchListClient="+watchList)
			if watchList == "true" {
				run.Env = append(run.Env, "ENABLE_CLIENT_GO_WATCH_LIST_ALPHA=true")
			}
			output, err := run.StdoutPipe()
			if err != nil {
				return nil, err
			}
			// The program ends with this pipe, and so also with a test that is killed.
			if _, err := run.StdinPipe(); err != nil {
				return nil, err
			}
			var errors bytes.Buffer
			run.Stderr = &errors
			if err := run.Start(); err != nil {
				return nil, err
			}
			started := &foreignInformers{name: fmt.Sprintf("%s, WatchList %s", filepath.Base(program), watchList)}
			all = append(all, started)
			s.begin(func() {
				started.read(bufio.NewScanner(output))
				if err := run.Wait(); s.alive.Err() == nil {
					s.fail(fmt.Errorf("%s has ended: %v: %s", started.name, err, errors.String()))
				}
			})
		}
	}
	return all, nil
}

func (f *foreignInformers) read(lines *bufio.Scanner) {
	for lines.Scan() {
		var contents map[string]map[string]string
		if json.Unmarshal(lines.Bytes(), &contents) == nil {
			f.mutex.Lock()
			f.contents = contents
			f.mutex.Unlock()
		}
	}
}

// each returns a function for each informer, and for each process of informers, by its name. The function compares its
// Leases with the wanted ones.
func (i informersOf) each() map[string]func(wanted map[string]string) error {
	all := map[string]func(map[string]string) error{"own": i.ownAgrees}
	for _, foreign := range i.foreign {
		all[foreign.name] = foreign.agree
	}
	return all
}

// ownAgrees compares the wanted Leases with those of the informer in this process, which has others too.
func (i informersOf) ownAgrees(wanted map[string]string) error {
	stored := map[string]string{}
	for _, object := range i.own.GetStore().List() {
		if held := object.(*coordinationv1.Lease); wanted[held.Name] != "" {
			stored[held.Name] = shown(held)
		}
	}
	if !maps.Equal(stored, wanted) {
		return fmt.Errorf("listed %v, stored %v", wanted, stored)
	}
	return nil
}

// shownOf returns what is compared of some Leases, by their names.
func shownOf(leases map[string]coordinationv1.Lease) map[string]string {
	all := map[string]string{}
	for name, held := range leases {
		all[name] = shown(&held)
	}
	return all
}

// shown returns what is compared of a Lease, as ../informers writes it.
func shown(held *coordinationv1.Lease) string {
	return fmt.Sprint(*held.Spec.HolderIdentity, " ", held.Spec.RenewTime.UTC())
}

// agree compares the Leases in the informers with the wanted ones.
func (f *foreignInformers) agree(wanted map[string]string) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if len(f.contents) == 0 {
		return fmt.Errorf("nothing was received")
	}
	for informer, stored := range f.contents {
		if !maps.Equal(stored, wanted) {
			return fmt.Errorf("%s: listed %v, stored %v", informer, wanted, stored)
		}
	}
	return nil
}
