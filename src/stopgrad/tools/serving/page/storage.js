// What outlives a reload: one record for each training, in the browser's own database.

const DATABASE = "stopgrad", STORE = "trainings";

const settled = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

function opened() {
  const request = indexedDB.open(DATABASE, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(STORE);
  return settled(request);
}

/** Done when the browser has written it: all of it, or nothing. */
async function within(mode, work) {
  const database = await opened();
  try {
    const transaction = database.transaction(STORE, mode, { durability: "strict" });
    const done = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = transaction.onerror = () => reject(transaction.error ?? new Error("the browser refused it"));
    });
    const result = await settled(work(transaction.objectStore(STORE)));
    await done;
    return result;
  } finally {
    database.close();
  }
}

export const read = (key) => within("readonly", (store) => store.get(key));
export const write = (key, value) => within("readwrite", (store) => store.put(value, key));
export const remove = (key) => within("readwrite", (store) => store.delete(key));
