"""SGLang's flags by release. Written by scripts/engine_flags.py; do not edit. Data."""

RELEASES = (
    "0.4.6.post5",
    "0.4.9",
    "0.5.1",
    "0.5.2",
    "0.5.3",
    "0.5.4",
    "0.5.6",
    "0.5.8",
    "0.5.10",
    "0.5.12",
    "0.5.14",
    "0.5.16",
    "0.5.18",
    "0.5.20",
    "0.5.22",
    "0.5.23",
)
# First and last release that had them → flags; `--flag=value` is a value that the flag takes.
FLAGS = {
    ("0.4.6.post5", "0.4.6.post5"): """
    --enable-flashinfer-mla --enable-flashmla --n-share-experts-fusion
    """,
    ("0.4.6.post5", "0.5.1"): """
    --pdlb-url
    """,
    ("0.4.6.post5", "0.5.3"): """
    --max-micro-batch-size
    """,
    ("0.4.6.post5", "0.5.4"): """
    --enable-deepep-moe --enable-ep-moe
    """,
    ("0.4.6.post5", "0.5.10"): """
    --ds-channel-config-path --ds-heavy-channel-num --ds-heavy-channel-type --ds-heavy-token-num
    --ds-sparse-decode-threshold --enable-double-sparsity
    """,
    ("0.4.6.post5", "0.5.12"): """
    --debug-tensor-dump-inject --enable-nan-detection
    """,
    ("0.4.6.post5", "0.5.14"): """
    --quantization=qoq
    """,
    ("0.4.6.post5", "0.5.16"): """
    --torchao-config
    """,
    ("0.4.6.post5", "0.5.18"): """
    --collect-tokens-histogram --cuda-graph-bs --cuda-graph-max-bs
    --enable-expert-distribution-metrics --quantization=marlin --stream-output
    """,
    ("0.4.6.post5", "0.5.23"): """
    --allow-auto-truncate --api-key --attention-backend --base-gpu-id --bucket-e2e-request-latency
    --bucket-inter-token-latency --bucket-time-to-first-token --chat-template --chunked-prefill-size
    --completion-template --constrained-json-whitespace-pattern --context-length --cpu-offload-gb
    --data-parallel-size --debug-tensor-dump-input-file --debug-tensor-dump-output-folder
    --decode-log-interval --deepep-config --deepep-mode --delete-ckpt-after-loading --device
    --disable-chunked-prefix-cache --disable-cuda-graph --disable-cuda-graph-padding
    --disable-custom-all-reduce --disable-fast-image-processor --disable-outlines-disk-cache
    --disable-overlap-schedule --disable-radix-cache --disaggregation-bootstrap-port
    --disaggregation-ib-device --disaggregation-mode --disaggregation-transfer-backend
    --dist-init-addr --dist-timeout --download-dir --dp-size --dtype --dtype=auto --dtype=bfloat16
    --dtype=float --dtype=float16 --dtype=float32 --dtype=half --enable-cache-report
    --enable-custom-logit-processor --enable-dp-attention --enable-dp-lm-head --enable-eplb
    --enable-hierarchical-cache --enable-memory-saver --enable-metrics --enable-mixed-chunk
    --enable-multimodal --enable-nccl-nvls --enable-p2p-check --enable-request-time-stats-logging
    --enable-tokenizer-batch-encode --enable-torch-compile --ep-dispatch-algorithm
    --ep-num-redundant-experts --ep-size --eplb-rebalance-num-iterations
    --expert-distribution-recorder-buffer-size --expert-distribution-recorder-mode
    --expert-parallel-size --file-storage-path --flashinfer-mla-disable-ragged --gpu-id-step
    --grammar-backend --hicache-ratio --hicache-size --hicache-write-policy --host
    --init-expert-location --is-embedding --json-model-override-args --kv-cache-dtype
    --kv-cache-dtype=auto --kv-cache-dtype=fp8_e4m3 --kv-cache-dtype=fp8_e5m2 --kv-events-config
    --load-balance-method --load-format --log-level --log-level-http --log-requests
    --log-requests-level --lora-backend --lora-paths --max-loras-per-batch --max-prefill-tokens
    --max-running-requests --max-total-tokens --mem-fraction-static --mm-attention-backend
    --model-path --moe-dense-tp-size --nccl-init-addr --nnodes --node-rank
    --num-continuous-decode-steps --page-size --pipeline-parallel-size --port --pp-size
    --preferred-sampling-params --quantization --quantization-param-path --quantization=awq
    --quantization=awq_marlin --quantization=bitsandbytes --quantization=fp8 --quantization=gguf
    --quantization=gptq --quantization=gptq_marlin --quantization=modelopt
    --quantization=modelopt_fp4 --quantization=moe_wna16 --quantization=w8a8_fp8
    --quantization=w8a8_int8 --random-seed --reasoning-parser --revision --sampling-backend
    --schedule-conservativeness --schedule-policy --served-model-name --show-time-cost
    --skip-tokenizer-init --speculative-accept-threshold-acc --speculative-accept-threshold-single
    --speculative-algorithm --speculative-draft-model-path --speculative-eagle-topk
    --speculative-num-draft-tokens --speculative-num-steps --speculative-token-map --stream-interval
    --tensor-parallel-size --tokenizer-mode --tokenizer-path --tool-call-parser
    --torch-compile-max-bs --tp-size --triton-attention-num-kv-splits
    --triton-attention-reduce-in-fp32 --trust-remote-code --warmups --watchdog-timeout
    """,
    ("0.4.9", "0.4.9"): """
    --disable-overlap-cg-plan --enable-flashinfer-moe --impl
    """,
    ("0.4.9", "0.5.3"): """
    --debug-tensor-dump-prefill-only
    """,
    ("0.4.9", "0.5.8"): """
    --disaggregation-decode-dp --disaggregation-decode-tp --disaggregation-prefill-pp
    """,
    ("0.4.9", "0.5.12"): """
    --hybrid-kvcache-ratio
    """,
    ("0.4.9", "0.5.23"): """
    --crash-dump-folder --custom-weight-loader --disable-shared-experts-fusion
    --enable-flashinfer-allreduce-fusion --enable-mscclpp --enable-profile-cuda-graph
    --enable-return-hidden-states --enable-two-batch-overlap --eplb-algorithm
    --eplb-rebalance-layers-per-chunk --model --model-loader-extra-config --nccl-port
    --num-reserved-decode-tokens --skip-server-warmup --sleep-on-idle --weight-loader-disable-mmap
    """,
    ("0.5.1", "0.5.4"): """
    --enable-flashinfer-cutlass-moe --enable-flashinfer-mxfp4-moe --enable-flashinfer-trtllm-moe
    --enable-triton-kernel-moe
    """,
    ("0.5.1", "0.5.23"): """
    --decode-attention-backend --disable-flashinfer-cutlass-moe-fp4-allgather
    --disable-hybrid-swa-memory --enable-cudagraph-gc --enable-lora
    --enable-metrics-for-all-schedulers --enable-pdmux --enable-symm-mem --ep
    --flashinfer-mxfp4-moe-precision --gc-warning-threshold-secs --hicache-io-backend
    --hicache-mem-layout --hicache-storage-backend --hicache-storage-prefetch-policy
    --lora-target-modules --max-loaded-loras --max-lora-rank --max-queued-requests --model-impl
    --moe-a2a-backend --moe-runner-backend --offload-group-size --offload-mode
    --offload-num-in-group --offload-prefetch-step --prefill-attention-backend --quantization=mxfp4
    --quantization=petit_nvfp4 --quantization=w4afp8 --scheduler-recv-interval --sm-group-num
    --swa-full-tokens-ratio --tbo-token-distribution-threshold --tool-server --weight-version
    """,
    ("0.5.2", "0.5.18"): """
    --prefill-round-robin-balance
    """,
    ("0.5.2", "0.5.23"): """
    --enable-lmcache --eplb-min-rebalancing-utilization-threshold --generation-tokens-buckets
    --hicache-storage-backend-extra-config --mamba-ssm-dtype --max-mamba-cache-size --numa-node
    --prompt-tokens-buckets --speculative-attention-mode --speculative-draft-model
    --speculative-draft-model-revision --tokenizer-worker-num
    """,
    ("0.5.3", "0.5.3"): """
    --nsa-decode --nsa-prefill
    """,
    ("0.5.3", "0.5.4"): """
    --enable-flashinfer-cutedsl-moe --oltp-traces-endpoint
    """,
    ("0.5.3", "0.5.6"): """
    --load-watch-interval
    """,
    ("0.5.3", "0.5.8"): """
    --speculative-ngram-branch-length --speculative-ngram-max-match-window-size
    --speculative-ngram-min-match-window-size
    """,
    ("0.5.3", "0.5.20"): """
    --keep-mm-feature-on-device
    """,
    ("0.5.3", "0.5.23"): """
    --config --disaggregation-decode-enable-offload-kvcache --disaggregation-decode-polling-interval
    --dynamic-batch-tokenizer-batch-size --dynamic-batch-tokenizer-batch-timeout
    --enable-deterministic-inference --enable-dynamic-batch-tokenizer --enable-fp32-lm-head
    --enable-priority-scheduling --enable-single-batch-overlap --enable-torch-symm-mem
    --enable-trace --enable-weights-cpu-backup --max-lora-chunk-size
    --priority-scheduling-preemption-threshold --radix-eviction-policy
    --remote-instance-weight-loader-seed-instance-ip
    --remote-instance-weight-loader-seed-instance-service-port
    --remote-instance-weight-loader-send-weights-group-ports --schedule-low-priority-values-first
    --speculative-ngram-capacity --speculative-ngram-match-type --speculative-ngram-max-bfs-breadth
    --speculative-ngram-min-bfs-breadth --tokenizer-metrics-allowed-custom-labels
    --tokenizer-metrics-custom-labels-header --triton-attention-split-tile-size
    """,
    ("0.5.4", "0.5.4"): """
    --enable-beta-spec --kt-amx-method --kt-amx-weight-path
    """,
    ("0.5.4", "0.5.10"): """
    --multi-item-scoring-delimiter
    """,
    ("0.5.4", "0.5.12"): """
    --enable-piecewise-cuda-graph
    """,
    ("0.5.4", "0.5.18"): """
    --nsa-decode-backend --nsa-prefill-backend --piecewise-cuda-graph-compiler
    --piecewise-cuda-graph-max-tokens --piecewise-cuda-graph-tokens
    """,
    ("0.5.4", "0.5.23"): """
    --abort-on-priority-when-disabled --checkpoint-engine-wait-weights-before-ready
    --constrained-json-disable-any-whitespace --disable-tokenizer-batch-decode --elastic-ep-backend
    --grpc-mode --kt-cpuinfer --kt-num-gpu-experts --kt-threadpool-count --kv-cache-dtype=bf16
    --kv-cache-dtype=bfloat16 --lora-eviction-policy --mamba-full-memory-ratio
    --modelopt-checkpoint-restore-path --modelopt-checkpoint-save-path --modelopt-export-path
    --modelopt-quant --mooncake-ib-device --pdmux-config-path --pp-max-micro-batch-size
    --quantization=compressed-tensors --quantization=modelopt_fp8 --quantize-and-serve
    --sampling-defaults --speculative-draft-load-format
    """,
    ("0.5.6", "0.5.6"): """
    --dllm-block-size --enable-flashinfer-autotune
    """,
    ("0.5.6", "0.5.8"): """
    --mm-max-concurrent-calls --mm-per-request-timeout
    """,
    ("0.5.6", "0.5.18"): """
    --enable-nsa-prefill-context-parallel
    """,
    ("0.5.6", "0.5.20"): """
    --kv-cache-dtype=fp4_e2m1
    """,
    ("0.5.6", "0.5.23"): """
    --debug-tensor-dump-layers --decrypted-config-file --decrypted-draft-config-file
    --dllm-algorithm --enable-attn-tp-input-scattered --enable-broadcast-mm-inputs-process
    --enable-draft-weights-cpu-backup --enable-layerwise-nvtx-marker
    --enable-torch-compile-debug-mode --export-metrics-to-file --export-metrics-to-file-dir
    --fastapi-root-path --forward-hooks --kt-max-deferred-experts-per-token --kt-method
    --kt-weight-path --mm-enable-dp-encoder --mm-process-config --otlp-traces-endpoint
    --quantization=auto-round --rl-on-policy-target --speculative-moe-runner-backend
    """,
    ("0.5.8", "0.5.8"): """
    --disable-hicache-numa-detect --disaggregation-decode-enable-fake-auto
    --hierarchical-sparse-attention-extra-config
    """,
    ("0.5.8", "0.5.12"): """
    --custom-sigquit-handler
    """,
    ("0.5.8", "0.5.18"): """
    --mamba-scheduler-strategy --nsa-prefill-cp-mode
    """,
    ("0.5.8", "0.5.23"): """
    --admin-api-key --disable-flashinfer-autotune --dllm-algorithm-config --enable-dynamic-chunking
    --enable-fused-qk-norm-rope --enable-lora-overlap-loading --enable-multi-layer-eagle
    --enable-precise-embedding-interpolation --enable-prefill-delayer --enable-prefix-mm-cache
    --enable-return-routed-experts --encoder-only --encoder-transfer-backend --encoder-urls
    --fp4-gemm-backend --fp8-gemm-backend --hf-chat-template-name --language-only
    --limit-mm-data-per-request --log-requests-format --log-requests-target --mamba-track-interval
    --model-checksum --pp-async-batch-depth --prefill-delayer-forward-passes-buckets
    --prefill-delayer-max-delay-passes --prefill-delayer-token-usage-low-watermark
    --prefill-delayer-wait-seconds-buckets --prefill-max-requests --quantization=modelslim
    --quantization=quark_int4fp8_moe --remote-instance-weight-loader-backend
    --remote-instance-weight-loader-start-seed-via-transfer-engine --rl-quant-profile
    --soft-watchdog-timeout --speculative-draft-attention-backend
    --speculative-draft-model-quantization --speculative-moe-a2a-backend
    --uvicorn-access-log-exclude-prefixes
    """,
    ("0.5.10", "0.5.18"): """
    --disable-piecewise-cuda-graph --enable-prefill-context-parallel --enforce-piecewise-cuda-graph
    --prefill-cp-mode
    """,
    ("0.5.10", "0.5.23"): """
    --attention-context-parallel-size --attn-cp-size --default-priority-value
    --disable-priority-preemption --enable-adaptive-dispatch-to-encoder
    --enable-aiter-allreduce-fusion --enable-elastic-expert-backup --enable-fused-moe-sum-all-reduce
    --enable-hisparse --enable-mfu-metrics --enable-mm-global-cache --enable-ssl-refresh
    --enable-streaming-session --enforce-disable-flashinfer-allreduce-fusion
    --engine-info-bootstrap-port --experts-shared-outer-loras --extra-metric-labels --gc-threshold
    --hisparse-config --incremental-streaming-output --linear-attn-backend
    --linear-attn-decode-backend --linear-attn-prefill-backend --mamba-backend --modelexpress-config
    --moe-data-parallel-size --moe-dp-size --pre-warm-nccl --quantization=modelopt_mixed
    --quantization=mxfp8 --speculative-ngram-max-trie-depth --ssl-ca-certs --ssl-certfile
    --ssl-keyfile --ssl-keyfile-password --stream-response-default-include-usage --use-ray
    """,
    ("0.5.12", "0.5.12"): """
    --record-nolora-graph
    """,
    ("0.5.12", "0.5.14"): """
    --enable-deepep-waterfill
    """,
    ("0.5.12", "0.5.18"): """
    --enable-breakable-cuda-graph --speculative-dflash-draft-window-size
    """,
    ("0.5.12", "0.5.20"): """
    --elastic-ep-rejoin
    """,
    ("0.5.12", "0.5.22"): """
    --speculative-skip-dp-mlp-sync
    """,
    ("0.5.12", "0.5.23"): """
    --batch-notify-size --debug-cuda-graph --detokenizer-worker-num
    --disaggregation-decode-enable-radix-cache --enable-dp-attention-local-control-broadcast
    --enable-forward-pass-metrics --enable-http2 --enable-mis --enable-quant-communications
    --enable-return-indexer-topk --enable-strict-thinking --enforce-shared-experts-fusion
    --forward-pass-metrics-ipc-name --forward-pass-metrics-worker-id --grpc-http-sidecar-port
    --hierarchical-sparse-attention-extra-config --lora-drain-wait-threshold --lora-strict-loading
    --lora-use-virtual-experts --model-config-parser --msprobe-dump-config
    --prefill-delayer-max-delay-ms --prefill-delayer-queue-min-ratio --prefill-only-disable-kv-cache
    --quantization=mlx_q4 --quantization=mlx_q8 --quantization=quark --quantization=unquant
    --speculative-adaptive --speculative-adaptive-config --speculative-dflash-block-size
    --speculative-draft-window-size --speculative-ngram-external-corpus-max-tokens
    --speculative-ngram-external-corpus-path --speculative-ngram-external-sam-budget
    --strip-thinking-cache --tokenizer-backend --weight-loader-drop-cache-after-load
    --weight-loader-prefetch-checkpoints --weight-loader-prefetch-num-threads
    """,
    ("0.5.14", "0.5.14"): """
    --optimistic-prefill-retries
    """,
    ("0.5.14", "0.5.18"): """
    --dsa-prefill-cp-mode --enable-dsa-prefill-context-parallel
    """,
    ("0.5.14", "0.5.20"): """
    --cuda-graph-tc-compiler
    """,
    ("0.5.14", "0.5.23"): """
    --asr-max-buffer-seconds --asr-max-concurrent-sessions --cp-strategy --cuda-graph-backend-decode
    --cuda-graph-backend-prefill --cuda-graph-bs-decode --cuda-graph-bs-prefill --cuda-graph-config
    --cuda-graph-max-bs-decode --cuda-graph-max-bs-prefill --deepep-dispatcher-output-dtype
    --disable-attn-tp-gather --disable-decode-cuda-graph --disable-prefill-cuda-graph
    --disaggregation-decode-extra-slots --dsa-decode-backend --dsa-prefill-backend
    --dsa-topk-backend --enable-deepseek-v4-fp4-indexer --enable-int8-mamba-checkpoint
    --enable-prefill-cp --encoder-bootstrap-port --encoder-register-urls
    --flashinfer-allreduce-fusion-backend --int8-mamba-ckpt-size --kv-canary --kv-canary-real-data
    --kv-canary-sweep-interval --lmcache-config-file --load-snapshot-publish-interval
    --mamba-radix-cache-strategy --quantization=nvfp4_online --quantization=quark_mxfp4
    --radix-cache-backend --speculative-use-rejection-sampling --trace-modules
    """,
    ("0.5.16", "0.5.18"): """
    --enable-gdn-replayssm-spec
    """,
    ("0.5.16", "0.5.23"): """
    --bf16-gemm-backend --dcp-size --decode-context-parallel-size --decoupled-spec-bind-endpoint
    --decoupled-spec-connect-endpoints --decoupled-spec-rank --decoupled-spec-role
    --default-chat-template-kwargs --dllm-fdfo --dsa-paged-mqa-logits-backend
    --elastic-ep-initial-size --elastic-ep-join-mode --elastic-ep-join-rank-offset
    --elastic-ep-scale-timeout --enable-dsa-cache-layer-split --enable-flexkv
    --enable-linear-replayssm --enable-mamba-cache-stochastic-rounding --enable-page-major-kv-layout
    --enable-scattered-sconv --enable-session-radix-cache --enable-tf32-matmul
    --enable-unified-memory --enable-waterfill --flexkv-config-file --fuseep-mode --grpc-port
    --kv-cache-dtype=fp4_mx_block16 --kv-cache-dtype=mxfp8 --kv-cache-dtype=nvfp4
    --linear-replayssm-cache-len --mamba-cache-philox-rounds --max-ep-size --min-free-slots-delay
    --mm-feature-transport --optimistic-prefill-attempts --quantization=auto-round-int8
    --quantization=humming --quantization=mxfp_w4a8 --retraction-policy --sidecar --sidecar-args
    --smg-grpc-mode --smg-http-sidecar-port --spec-trace-dir
    --speculative-dspark-align-verify-tokens-to-graph-tier --speculative-dspark-block-size
    --speculative-dspark-confidence-sts-path --speculative-dspark-sps-table-path
    """,
    ("0.5.18", "0.5.23"): """
    --allowed-media-domains --c128-page-size --dcp-comm-backend --dcp-replicate-q-proj
    --disaggregation-decode-retraction-backup --dwdp-size --enable-cp-decode-attn-tp
    --enable-linear-replayssm-spec --enable-tp-lm-head-all-to-all --expert-balancedness-report-mode
    --flashinfer-autotune-skip-ops --http2-max-concurrent-streams --image-processor-backend
    --language-model-only --linear-attn-verify-backend --mamba-max-states-per-path
    --media-url-max-file-size-mb --mlx-enable-sampling --mm-global-cache-backend --mm-io-worker-num
    --mm-preprocess-cache-size-mb --mm-processor-worker-num --return-hidden-states-mode
    --speculative-draft-kv-cache-dtype --startup-weight-load-mode --trust-mm-content-hashes
    --weight-cache-mode --weight-cache-socket --weight-cache-timeout
    """,
    ("0.5.20", "0.5.23"): """
    --deepep-v2-mode --dsv4-attn-backend --dsv4-prefill-backend --enable-dense-mlp-attn-tp
    --enable-layernorm-sp --enable-lean-attention --enable-response-store
    --enable-shared-experts-attn-tp --enable-unified-cache-external-linker
    --enable-w4a4-mxfp4-megamoe --flashinfer-a2a-dispatch-type --gated-launch-port
    --hicache-host-memory-mode --hicache-storage-prefetch-retry-max-attempts
    --hicache-storage-prefetch-retry-poll-interval --http2-initial-connection-window-size
    --load-publish-endpoint --ple-offload-backend --ple-offload-dir --ple-offload-embedding
    --prefill-decode-interval --radix-eviction-policy-config --return-input-ids --return-output-ids
    --sampling-mask-max-tokens --speculative-domino-candidate-pool-size
    --speculative-dsa-topk-backend --unified-cache-external-linker-backend --uno-lora-path
    """,
    ("0.5.22", "0.5.23"): """
    --attention-data-parallel-size --attn-dp-size --boundary-reduction
    --constrained-json-max-whitespace-cnt --context-bucket --cuda-graph-max-seq-len-prefill
    --cuda-graph-prefill-max-context --disable-aiter-allreduce-fusion-in-decode
    --disable-aiter-allreduce-fusion-in-prefill --disaggregation-decode-allocation-policy
    --disaggregation-decode-host-receive-threshold --disaggregation-enable-kv-checksum
    --dsa-triton-union --enable-decoder-swa-bounded-replay --enable-dsa-fused-indexer
    --enable-encoder-swa-bounded-replay --enable-kv-cache-sharding --enable-linker-mla-dedup
    --enable-pd-role-switch --enable-watermark --grpc-response-timeout-secs
    --hicache-host-memory-fraction --otlp-service-name --prefill-kv-cache-dequant-dtype
    --qsa-indexer-dtype --shared-experts-tp-size --speculative-draft-sink-size
    --speculative-enable-w4a4-mxfp4-megamoe --speculative-use-block-verification --swa-prefix-tails
    --trust-request-chat-template --watermark-config
    """,
    ("0.5.23", "0.5.23"): """
    --enable-amd-monokernel --enable-hicache --enable-http-worker-reuseport
    --enable-megamoe-for-layernorm-sp --enable-nvidia-megakernel --enable-paged-experts
    --enable-return-aux-hidden-states --monokernel-backend --paged-experts-num-resident
    --prefill-decode-interval-min-bs --return-aux-hidden-state-layer-ids
    --unified-cache-external-linker-config
    """,
}
