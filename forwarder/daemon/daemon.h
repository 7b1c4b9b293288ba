// SPDX-License-Identifier: Apache-2.0
//
// One running forwarder: engine, tables and P4Runtime server put together, from start to end.
//
//     state directory, locked ─► engine: new tables ─► journal replayed into them ─► server listens
//       ─► ports attached, or their program replaced ─► statistics served ─► READY
//
// Until the ports are attached, whatever an earlier process attached goes on by its own tables; what is then in force
// is all that its controller wrote. At the end the ports stay attached, unless the configuration says otherwise.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <mutex>

#include "daemon/config.h"
#include "daemon/http.h"
#include "daemon/limiting.h"
#include "daemon/report.h"
#include "engine/descriptor.h"
#include "engine/engine.h"
#include "server/server.h"
#include "tables/tables.h"

namespace splitplane {

class Daemon {
  public:
    // Start all of it. ConfigError, EngineError, JournalError, ServerError or ListenError where something cannot be had.
    // At the end ports stay attached.
    explicit Daemon(const Config& config);
    Daemon(const Daemon&) = delete;
    Daemon& operator=(const Daemon&) = delete;

    Report report();

    // Whether its own socket takes connections and P4Runtime answers there.
    bool answers(std::chrono::milliseconds within);
    // What it does in one line. Returns only where neither its tables nor its streams are stuck.
    std::string status();

  private:
    // Tells the tables' writers when no packet is in the pipeline that saw what they took out.
    class Grace : public GracePeriods {
      public:
        explicit Grace(Engine& engine) : engine_(engine) {}
        void synchronize() override { engine_.synchronize(); }

      private:
        Engine& engine_;
    };

    std::vector<Listener> listeners() const;
    void follow_speed(const PortStatus& port);
    std::vector<LinkReport> links();
    Load load();
    HttpResponse answer(std::string_view path);
    void log_start();
    void keep_journal();

    Config config_;
    std::vector<std::string> listening_;
    std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
    Descriptor lock_;
    std::unique_ptr<Engine> engine_;
    Grace grace_;
    Tables tables_;
    P4RuntimeServer server_;
    std::mutex speeds_mutex_;  // while ports' speeds are followed
    // Its threads call the server and the tables: they end before these do, also where the constructor does not come
    // to its end.
    class Running {
      public:
        explicit Running(Engine& engine) : engine_(engine) {}
        ~Running() { engine_.stop(); }

      private:
        Engine& engine_;
    };
    Running running_{*engine_};
    Limits limits_;
    std::future<void> look_;  // at them, for the next who asks
    bool journal_broken_ = false;  // as the log has it
    // Each with a thread and connections of its own: who floods the metrics does not keep `status` from its answer.
    std::unique_ptr<HttpServer> control_;
    std::unique_ptr<HttpServer> metrics_;
};

// Run until SIGTERM or SIGINT.
void run_daemon(const Config& config);

}  // namespace splitplane
