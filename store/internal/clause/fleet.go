package clause

const FindWorker = `SELECT w.status FROM kagzi.workers w WHERE w.worker_id = $2 AND w.namespace_id = $1`
